-- What workers know of a job beside what the queue keeps: how it goes, what it came to, and why it failed.
CREATE TABLE job_states (
    job_id bigint PRIMARY KEY,
    failures integer NOT NULL DEFAULT 0,
    deaths integer NOT NULL DEFAULT 0,
    progress jsonb NOT NULL DEFAULT '{}',
    outcome jsonb,
    reason text NOT NULL DEFAULT ''
);

-- Who the queue's workers are. A process of this machine that is gone is known at once, without waiting for its pulse.
CREATE TABLE workers (
    worker_id bigint PRIMARY KEY,
    machine text NOT NULL,
    owner text NOT NULL,
    host text NOT NULL,
    queues text NOT NULL,
    concurrency integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now()
);
