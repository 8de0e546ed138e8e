"""What tests share, by subject; the first line of each module says what it gives.

- servers: servers and services that a test starts;
- packages: the package with something more, or beside an engine that is not here;
- doubles: doubles of what the package talks to;
- answers: requests, and what comes of them;
- harm: what attackers and faults do;
- interpreter: what the engine's interpreter runs;
- records: records, and documents of others;
- run: the run of the tests itself.
"""
