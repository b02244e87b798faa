"""From a repository to a change: the only room that talks to git, through one hardened wrapper. It judges nothing."""
