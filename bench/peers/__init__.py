"""The rivals, each driven through its public interface: ``registry.py`` names them, ``drive_*`` are their drivers.

A driver is a program that knows one library. It is called as ``drive_x ACTION JSON`` and prints one line of JSON at the
end; ``protocol.py`` and ``protocol.mjs`` hold what all drivers share, so that each kind of job does the same work and is
counted in the same way everywhere:

    setup     make the tables
    fill      put a backlog of jobs into the queue
    add       add jobs one by one or by the hundred or thousand, from one client or 10, and time that
    work      run a worker until SIGTERM
    produce   send jobs at a fixed rate, each at its scheduled moment, whatever became of those before
    delay     store jobs that fall due at fixed moments

The jobs are ``noop``, ``io`` (wait 10 ms), ``cpu`` (1,000 times sin and cos), ``late`` (note how late it began), ``flaky`` (fail at
the first two attempts) and ``warm`` (uncounted). Each carries its number and, for ``late``, the moment it was meant to begin. A job
marks its number in memory; every process writes its marks into the directory BENCH_TALLY, where the harness adds them up.
"""
