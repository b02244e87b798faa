"""From a plan to claims: agents, analysers and external programs, and the verification of claims."""
