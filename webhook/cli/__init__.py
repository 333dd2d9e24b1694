"""The command `slicewarden`: a module for each subcommand, and the code that they share."""
