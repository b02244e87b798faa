-- Runs of pipelines: state and lock in one row, and what a machine needs besides to go on. A path and the name of a
-- stage are bytes, since both may hold what is no text. What several runs hold alike is stored once.
CREATE FUNCTION clock_seconds() RETURNS double precision LANGUAGE sql VOLATILE
    AS 'SELECT extract(epoch FROM clock_timestamp())::double precision';

CREATE TABLE runs (
    run_id text COLLATE "C" PRIMARY KEY,
    state bytea NOT NULL,
    -- Names the last save, so that one which is sent twice is known.
    save text NOT NULL,
    holder text,
    host text,
    since double precision,
    expires_at double precision
);

CREATE TABLE run_events (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    payload bytea NOT NULL
);
CREATE INDEX events_of_run ON run_events (run_id, number);

CREATE TABLE run_approvals (
    run_id text COLLATE "C" NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    stage bytea NOT NULL,
    payload bytea NOT NULL,
    taken_by text,
    PRIMARY KEY (run_id, stage)
);

CREATE TABLE run_blobs (
    digest bytea PRIMARY KEY,
    size_bytes bigint NOT NULL,
    created_at double precision NOT NULL DEFAULT clock_seconds()
);

CREATE TABLE run_chunks (
    digest bytea NOT NULL REFERENCES run_blobs (digest) ON DELETE CASCADE,
    position integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (digest, position)
);
-- Packs and their like are compressed already.
ALTER TABLE run_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE run_files (
    run_id text COLLATE "C" NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    path bytea NOT NULL,
    digest bytea NOT NULL REFERENCES run_blobs (digest),
    mode integer NOT NULL,
    PRIMARY KEY (run_id, path)
);
CREATE INDEX files_by_digest ON run_files (digest);
