package distlock.peer;

/** What an acquisition got: the owner in Redis, and the token or the id of the permit where the object has them. */
record Grant(String owner, Long token, String permit) {}
