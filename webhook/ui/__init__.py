"""The page of `slicewarden ui`: who shares the GPUs now, served on loopback and renewed while somebody looks."""
