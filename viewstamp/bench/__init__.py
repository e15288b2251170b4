"""What measurements have in common: ``viewstamp bench``, and the programs in ``benchmarks/`` of a checkout.

Promises
  * A caller awaits each of its calls before the next. The callers are in this process, the nodes in processes of
    their own. So beside each figure stands ``client_cores``: the cores that this process was busy with. Near 1, it is
    the callers that are measured.
  * ``durability`` and ``filesystem`` are in every output, and memory is not passed off as a disk.
  * What is a cluster's own is made in the current directory, on its disk, and is removed in the end, whatever ends it.

The pieces: ``load.py`` keeps callers going and counts; ``cluster.py`` makes a cluster, or takes one that is there, or
leads one from this process; ``fill.py`` puts records into it; ``conditions.py`` says where and with what was measured;
``plot.py`` draws percentiles; ``report.py`` prints.
"""
