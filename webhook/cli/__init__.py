"""The command `slicewarden`: a module for each of its commands, and what they share."""
