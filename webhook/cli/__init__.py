"""The command `slicewarden`: a module for each of its commands, the options they share, and the pages they print."""
