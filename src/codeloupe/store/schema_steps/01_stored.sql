-- The tables that SQLite and Postgres both have, and that `codeloupe store migrate` copies. A row has the same key in
-- every database. The key of a row that belongs to another row begins with the key of that row. The statements are in the
-- words of Postgres; schema.py lists the differences. Texts have COLLATE "C" if they are sorted or searched by a prefix.

-- The ledger: finished agent calls by their key.
CREATE TABLE results (
    key text COLLATE "C" PRIMARY KEY,
    created_at double precision NOT NULL,
    size_bytes bigint NOT NULL,
    agent text NOT NULL,
    model text,
    cost_usd double precision,
    payload bytea NOT NULL
);
-- Pruning and statistics read this index only, never a payload.
CREATE INDEX results_by_age ON results (created_at, size_bytes, cost_usd);
CREATE INDEX results_of_agent ON results (agent, created_at);

-- The history. Lists are sorted by `turn`. A save gets a turn larger than all in its database, also if the clock is wrong.
-- A copy keeps its turn. `entry` is what a list shows; `payload` is everything except the findings.
CREATE TABLE reviews (
    review_id text COLLATE "C" PRIMARY KEY,
    sweep_id text COLLATE "C",
    turn bigint NOT NULL,
    saved_at double precision NOT NULL,
    repository text COLLATE "C" NOT NULL,
    work_tree text COLLATE "C" NOT NULL,
    branch text,
    scope text NOT NULL,
    reviewer text NOT NULL,
    cost_usd double precision NOT NULL,
    unknown_costs bigint NOT NULL,
    duration_seconds double precision NOT NULL,
    size_bytes bigint NOT NULL,
    entry bytea NOT NULL,
    payload bytea NOT NULL
);
CREATE INDEX reviews_of_repository ON reviews (repository, turn) WHERE sweep_id IS NULL;
CREATE INDEX reviews_of_work_tree ON reviews (work_tree, turn, review_id) WHERE sweep_id IS NULL;
CREATE INDEX reviews_in_order ON reviews (turn);
CREATE INDEX reviews_of_sweep ON reviews (sweep_id) WHERE sweep_id IS NOT NULL;

CREATE TABLE findings (
    review_id text COLLATE "C" NOT NULL REFERENCES reviews (review_id) ON DELETE CASCADE,
    position bigint NOT NULL,
    hidden bigint NOT NULL,
    is_open bigint NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    severity bigint NOT NULL,
    status text NOT NULL,
    file text NOT NULL,
    expert text,
    reviewer text NOT NULL,
    category text NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (review_id, position)
);
-- Trends read this index only.
CREATE INDEX findings_for_trends ON findings (review_id, hidden, is_open, fingerprint, status, expert);
CREATE INDEX findings_by_fingerprint ON findings (fingerprint, review_id);

CREATE TABLE raw_outputs (
    review_id text COLLATE "C" NOT NULL REFERENCES reviews (review_id) ON DELETE CASCADE,
    position bigint NOT NULL,
    unit bytea NOT NULL,
    output bytea NOT NULL,
    PRIMARY KEY (review_id, position)
);

CREATE TABLE sweeps (
    sweep_id text COLLATE "C" PRIMARY KEY,
    turn bigint NOT NULL,
    saved_at double precision NOT NULL,
    repository text COLLATE "C" NOT NULL,
    work_tree text COLLATE "C" NOT NULL,
    branch text,
    size_bytes bigint NOT NULL,
    entry bytea NOT NULL,
    payload bytea NOT NULL
);
CREATE INDEX sweeps_of_repository ON sweeps (repository, turn);
CREATE INDEX sweeps_of_work_tree ON sweeps (work_tree, turn);
CREATE INDEX sweeps_in_order ON sweeps (turn);

CREATE TABLE sweep_commits (
    sweep_id text COLLATE "C" NOT NULL REFERENCES sweeps (sweep_id) ON DELETE CASCADE,
    sha text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    review_id text COLLATE "C",
    payload bytea NOT NULL,
    PRIMARY KEY (sweep_id, sha)
);
CREATE INDEX commits_of_sweep ON sweep_commits (sweep_id, position);

CREATE TABLE dismissals (
    repository text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (repository, fingerprint)
);

-- The cost of agent calls in a calendar month (UTC), for each budget that they were paid from. `budget` is the kind of the
-- budget and its key, such as `team core`; `label` is its name for people. `source` is the id of the database that counted
-- the row. Only that database adds to it, so copies of several databases add up.
CREATE TABLE spending (
    month text COLLATE "C" NOT NULL,
    budget text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    label text NOT NULL,
    usd double precision NOT NULL,
    requests bigint NOT NULL,
    unknown_costs bigint NOT NULL,
    PRIMARY KEY (month, budget, agent, source)
);

-- Contents of files by their SHA-256, in chunks, so that no process needs a large file in its memory.
CREATE TABLE blobs (
    digest bytea PRIMARY KEY,
    size_bytes bigint NOT NULL,
    created_at double precision NOT NULL
);

CREATE TABLE blob_chunks (
    digest bytea NOT NULL REFERENCES blobs (digest) ON DELETE CASCADE,
    position bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (digest, position)
);

-- Runs of pipelines. `save` names the last save, so that a save that is sent twice is recognised. Paths and names of
-- stages are bytes, because both may contain characters that are not valid text.
CREATE TABLE runs (
    run_id text COLLATE "C" PRIMARY KEY,
    save text NOT NULL,
    state bytea NOT NULL
);

CREATE TABLE run_events (
    run_id text COLLATE "C" NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    position bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (run_id, position)
);

CREATE TABLE run_approvals (
    run_id text COLLATE "C" NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    stage bytea NOT NULL,
    question bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (run_id, stage)
);

CREATE TABLE run_files (
    run_id text COLLATE "C" NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    path bytea NOT NULL,
    digest bytea NOT NULL REFERENCES blobs (digest),
    PRIMARY KEY (run_id, path)
);
CREATE INDEX run_files_by_digest ON run_files (digest);
