# What is checked without running the programs. (Filled below as the checks are written.)
