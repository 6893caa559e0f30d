package distlock.peer;

/** The operations of one thread, by the kind of the object that they are for. */
final class Operations {
    private final Locks locks;
    private final Semaphores semaphores;
    private final Permits permits;
    private final Latches latches;

    Operations(Clients clients) {
        locks = new Locks(clients);
        semaphores = new Semaphores(clients.first());
        permits = new Permits(clients.first());
        latches = new Latches(clients.first());
    }

    Object perform(Call call) throws Exception {
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
