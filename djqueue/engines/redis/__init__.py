"""The Redis engine, for Redis from 6.2 and Valkey from 7.2.

**How jobs are stored.** A job is written once, as one opaque string. A claim and an outcome do not touch it: a claim is an entry
of the hash ``executing``, an outcome one more string. So each step is a handful of commands for a whole batch, never several per
job, and a waiting job takes less room than a hash of its fields would. ``lua/lib.lua`` names all keys and what is in them.

**Every verb is one script**, in ``lua/`` under its name, and so nothing else happens in the middle of it: nobody has to lock, to
try again, or to clean up after half of it. A script collects what it is going to write and writes it at its end, after all that
can fail; its first command is one that a server without memory refuses before anything is done (``insert``), or lets pass
(``ack``, ``fetch``). A script does a few milliseconds of work at most. What is more is several of them: between ``MULTI`` and
``EXEC`` where it is all or nothing (``insert_many``), one by one elsewhere.

**All keys of a prefix lie in one slot** (``{djqueue}:…``), and with it on one node of a cluster: unique keys, the rescue and the
crontab would not be atomic otherwise. To spread over a cluster, define several backends with several prefixes. While such a slot
moves to another node the engine is unavailable: a script would see half of the keys. (With the atomic slot migration of Valkey 9
that is a moment.)

**The claim is a time.** It grows with every claim of a job, and also when a restart has lost the last second, in which the same id
may have been handed out: a late outcome of a job that no longer exists is not taken for that of another.

**Order** is that of becoming available: one counter gives ids and places. A job handed back or rescued keeps its place.

**Sleepers** write a mark, a key that ends by itself. Whoever makes a job available looks for it in the same script, so nobody can
fall asleep in between, and sends one message that wakes all; see ``listener.py``.

**Looking for jobs by what they are** (``find``, ``count``, ``newest``) walks along the bitmaps of ids, some hundred jobs at a time:
an index for every question would cost each job memory and each claim time. So a question about few among a million takes seconds,
and the server does other things in between.

**Unique keys** are one entry each: who lives and holds it, who holds it beyond his life and until when. Whoever ends a job gives its
key back in the same script, and lets the follow-up begin. ``tests/engines/test_redis_books.py`` has an audit of all that is kept
twice.

**Known weak spots.** Nothing here commits together with a database: ``is_transactional`` is false, and the backend stores jobs
after the commit. What a server had not written to its disk when it died is lost, with ``appendfsync everysec`` a second; on a
fail-over, what the replica had not received. The ids of such jobs are not given again: each new server skips some, as many as its
clock says (``arrive.lua``, which has the limits). A server that may evict keys loses jobs, and is refused at the start of a worker.

``client.py`` is the connection, ``scripts.py`` loads the scripts, ``codec.py`` reads what they wrote, ``parts.py`` splits what is
too much for one. Each role of ``engines/protocol`` has a module of its name; ``unique.py`` inserts jobs with unique keys.
"""

from djqueue.engines.redis.engine import RedisEngine

__all__ = ["RedisEngine"]
