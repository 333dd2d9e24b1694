"""The command line, `slicewarden`: one module for each subcommand, and the code that they share."""
