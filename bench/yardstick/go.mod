module slicewarden.dev/bench/yardstick

go 1.24
