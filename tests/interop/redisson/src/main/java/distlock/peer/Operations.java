package distlock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RKeys;

/** The operations of one thread, by the kind of the object that they are for. */
final class Operations {
    private final Locks locks;
    private final Semaphores semaphores;
    private final Permits permits;
    private final Latches latches;
    private final RKeys keys;

    Operations(Clients clients) {
        locks = new Locks(clients);
        semaphores = new Semaphores(clients.first());
        permits = new Permits(clients.first());
        latches = new Latches(clients.first());
        keys = clients.first().getKeys();
    }

    Object perform(Call call) throws Exception {
        // Of any key, since a latch of Redisson has no such method.
        if (call.operation().equals("expire")) {
            return keys.expire(call.name(), call.expireAfter(), MILLISECONDS);
        }
        if (call.operation().equals("remaining_life")) {
            return keys.remainTimeToLive(call.name());
        }
        return switch (call.kind()) {
            case "semaphore" -> semaphores.perform(call);
            case "permit" -> permits.perform(call);
            case "latch" -> latches.perform(call);
            default -> locks.perform(call);
        };
    }

    static IllegalArgumentException unknown(Call call) {
        return new IllegalArgumentException("no operation of " + call.kind() + ": " + call.operation());
    }
}
