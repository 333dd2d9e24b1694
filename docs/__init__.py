"""The pages, and the programs that draw and write parts of them."""
