-- The limits that all processes share. Each table is changed under one lock, but for `limit_owners`: there a process
-- renews its own row alone. An account is an agent with a key or login, which its service counts by.
CREATE TABLE limit_owners (
    owner text COLLATE "C" PRIMARY KEY,
    expires_at double precision NOT NULL
);

-- `places` is how many requests may run after the service had no room, and `most` what that was lowered from; both are
-- NULL when nothing was lowered. `next_usd` is what the next answer may cost, after `answers` of them.
CREATE TABLE limit_accounts (
    account text COLLATE "C" PRIMARY KEY,
    places bigint,
    most bigint,
    lowered bigint NOT NULL DEFAULT 0,
    successes bigint NOT NULL DEFAULT 0,
    opens_at double precision NOT NULL DEFAULT 0,
    answers bigint NOT NULL DEFAULT 0,
    next_usd double precision NOT NULL DEFAULT 0
);

-- One waits while `started_at` is NULL, for the budget `blocked_by` or, if that is empty, for its account.
CREATE TABLE limited_requests (
    id text COLLATE "C" PRIMARY KEY,
    turn bigint NOT NULL DEFAULT nextval('turns'),
    owner text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    budgets text[] COLLATE "C" NOT NULL,
    blocked_by text COLLATE "C" NOT NULL DEFAULT '',
    started_at double precision,
    month text COLLATE "C",
    lowered bigint,
    reserved_usd double precision NOT NULL DEFAULT 0
);
CREATE INDEX limited_requests_of_owner ON limited_requests (owner);

CREATE TABLE limit_starts (
    account text COLLATE "C" NOT NULL,
    at double precision NOT NULL
);
CREATE INDEX limit_starts_of_account ON limit_starts (account, at);

CREATE TABLE spending (
    month text COLLATE "C" NOT NULL,
    budget text COLLATE "C" NOT NULL,
    usd double precision NOT NULL,
    requests bigint NOT NULL,
    unknown_costs bigint NOT NULL,
    PRIMARY KEY (month, budget)
);
