module slicewarden.dev/bench/load

go 1.24
