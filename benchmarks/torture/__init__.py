"""What odst must outlive: kills at every file operation, full disks, two processes in one folder, damaged runs and pools,
sources and configs that nobody could use.

    shim.py       in the process that is tried: the n-th file operation kills it, or finds the disk full
    calls.py      a command in a process of its own, forked from one that has imported everything, or started anew
    scenes.py     for every command that writes, how it is called and what it leaves behind
    cases.py      the parts of the table, each an iterator of verdicts
    configs.py    configs that nobody could run
    nodes.py      every stage on two Ray nodes, one of them killed
"""
