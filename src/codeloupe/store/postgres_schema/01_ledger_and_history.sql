-- The tables of ledger and history, as SQLite has them. Texts are compared byte by byte, whatever the server's language,
-- since beginnings of ids are looked up by an index.
CREATE SEQUENCE turns;

CREATE TABLE results (
    key text COLLATE "C" PRIMARY KEY,
    created_at double precision NOT NULL,
    size_bytes bigint NOT NULL,
    agent text NOT NULL,
    model text,
    cost_usd double precision,
    payload bytea NOT NULL
);
CREATE INDEX results_by_age ON results (created_at, size_bytes, cost_usd);

CREATE TABLE claims (
    key text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    lease_seconds double precision NOT NULL,
    expires_at double precision NOT NULL
);

CREATE TABLE reviews (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    review_id text COLLATE "C" NOT NULL UNIQUE,
    sweep_id text COLLATE "C",
    turn bigint NOT NULL,
    saved_at double precision NOT NULL,
    repository text COLLATE "C" NOT NULL,
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
CREATE INDEX reviews_in_order ON reviews (turn);
CREATE INDEX reviews_of_sweep ON reviews (sweep_id) WHERE sweep_id IS NOT NULL;

CREATE TABLE findings (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    review bigint NOT NULL REFERENCES reviews (number) ON DELETE CASCADE,
    position bigint NOT NULL,
    hidden smallint NOT NULL,
    is_open smallint NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    severity smallint NOT NULL,
    status text NOT NULL,
    file text NOT NULL,
    expert text,
    reviewer text NOT NULL,
    category text NOT NULL,
    payload bytea NOT NULL
);
CREATE INDEX findings_of_review ON findings (review, position);
CREATE INDEX findings_by_fingerprint ON findings (fingerprint, review);

CREATE TABLE raw_outputs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    review bigint NOT NULL REFERENCES reviews (number) ON DELETE CASCADE,
    unit bytea NOT NULL,
    output bytea NOT NULL
);
CREATE INDEX raw_outputs_of_review ON raw_outputs (review);

CREATE TABLE sweeps (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sweep_id text COLLATE "C" NOT NULL UNIQUE,
    turn bigint NOT NULL,
    saved_at double precision NOT NULL,
    repository text COLLATE "C" NOT NULL,
    branch text,
    size_bytes bigint NOT NULL,
    entry bytea NOT NULL,
    payload bytea NOT NULL
);
CREATE INDEX sweeps_of_repository ON sweeps (repository, turn);
CREATE INDEX sweeps_in_order ON sweeps (turn);

CREATE TABLE sweep_commits (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sweep bigint NOT NULL REFERENCES sweeps (number) ON DELETE CASCADE,
    position bigint NOT NULL,
    sha text COLLATE "C" NOT NULL DEFAULT '',
    review_id text COLLATE "C",
    payload bytea NOT NULL
);
CREATE INDEX commits_of_sweep ON sweep_commits (sweep, position);

CREATE TABLE dismissals (
    repository text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (repository, fingerprint)
);
