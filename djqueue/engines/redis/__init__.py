"""The Redis engine, for Redis from 6.2 and Valkey from 7.2.

**How jobs are stored.** A job is written once, as one opaque string. A claim and an outcome do not change it: a claim is an
entry of the hash ``executing``, an outcome one more string. So each step is a few commands for a whole batch, never several
per job, and a waiting job takes less memory than a hash of its fields would. ``lua/lib.lua`` documents all keys.

**Every verb is one script**, in ``lua/`` under its name. The server runs nothing else during a script, so no verb has to lock,
retry, or clean up after a partial write. A script collects its writes and writes them at its end, after everything that can
fail. Its first command is one that a server without free memory either refuses before anything is done (``insert``) or
accepts (``ack``, ``fetch``). A script runs for a few milliseconds at most. Larger work is split into several scripts: between
``MULTI`` and ``EXEC`` where it is all or nothing (``insert_many``), one by one elsewhere.

**All keys of a prefix are in one slot** (``{djqueue}:…``), and so on one node of a cluster: unique keys, the rescue and the
crontab would not be atomic otherwise. To spread jobs over a cluster, define several backends with several prefixes. While such
a slot migrates to another node the engine is unavailable, because a script would see half of the keys. (With the atomic slot
migration of Valkey 9 this takes only a moment.)

**The claim is a time.** It grows with every claim of a job, and also when a restart has lost the last second, in which the
same id may have been given to another job. So a late outcome of a job that was lost is not accepted for the new job.

**Order** is the order in which jobs become available: one counter gives both ids and positions. A job that is handed back or
rescued keeps its position.

**Sleepers** write a mark, a key that expires. The script that makes a job available also checks for the mark, so no worker can
fall asleep between the two. If there is one, it sends one message that wakes all sleepers; see ``listener.py``.

**Searches by the properties of jobs** (``find``, ``count``, ``newest``) scan the bitmaps of ids, some hundred jobs at a time. An
index for every filter would cost each job memory and each claim time. So a search for few jobs among a million takes seconds,
and the server runs other commands in between.

**Unique keys** have one entry each: the live job that holds the key, the job that holds it beyond its life, and until when. The
script that ends a job also releases its key and makes the follow-up available. ``tests/engines/test_redis_books.py`` audits all
data that is stored twice.

**Workflows** (``flows.py``, ``lua/ends.lua``). The script that ends a job also counts the end in the job's workflow and releases
the jobs that waited for it. What stops jobs, or is too much for one script, is left in a list of effects, on which the verb works
next, and the stager if the verb does not get there. A flag in a job and its claim tells the scripts whether there is anything to
look for, so that other jobs pay nothing.

**Known limits.** Jobs do not commit together with a database: ``is_transactional`` is false, and the backend stores jobs after
the commit. If the server crashes, it loses what it had not written to disk (with ``appendfsync everysec`` the last second); on
a failover, what the replica had not received. The ids of such jobs are not given again: each new server skips some, by a number
that depends on its clock (``arrive.lua`` documents the limits). A server that may evict keys would lose jobs, so workers refuse
to start on it.

``RedisEngine`` (``engine.py``) inserts jobs, controls them (``RedisController``) and inspects them (``RedisInspector``) on one
connection per thread (``application.py``). ``RedisFetcher``, ``RedisRegistrar`` and ``RedisMaintainer`` each use a connection of
their own (``session.py``), as ``RedisListener`` does. Each role of ``engines/protocol`` has the module of its name, except the
inserter, which is the engine itself; ``unique.py`` inserts jobs with unique keys,
``settling.py`` works on the effects of ends. ``client.py`` is one connection, ``nodes.py``
finds its server, ``scripts.py`` loads the scripts, ``codec.py`` decodes what they wrote, ``parts.py`` splits work that is too
much for one script.
"""

from djqueue.engines.redis.engine import RedisEngine

__all__ = ["RedisEngine"]
