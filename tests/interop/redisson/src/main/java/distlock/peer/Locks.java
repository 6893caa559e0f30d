package distlock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Locks of all kinds. */
final class Locks {
    private final Clients clients;
    /** As in a program that keeps its locks: a lock object remembers the lease that it was last acquired with. */
    private final Map<String, RLock> locks = new HashMap<>();

    Locks(Clients clients) {
        this.clients = clients;
    }

    Object perform(Call call) throws Exception {
        RLock lock = find(call);
        return switch (call.operation()) {
            case "acquire" -> call.kind().equals("fenced") ? acquireFenced(lock, call) : acquire(lock, call);
            case "release" -> {
                lock.unlock();
                yield true;
            }
            case "force_release" -> lock.forceUnlock();
            case "is_locked" -> lock.isLocked();
            case "hold_count" -> lock.getHoldCount();
            case "remaining_lease" -> lock.remainTimeToLive();
            case "hammer" -> Hammer.run(lock, call);
            default -> throw Operations.unknown(call);
        };
    }

    private RLock find(Call call) throws Exception {
        String key = call.kind() + call.names();
        RLock lock = locks.get(key);
        if (lock == null) {
            lock = create(call.kind(), call.names());
            locks.put(key, lock);
        }
        return lock;
    }

    private RLock create(String kind, List<String> names) throws Exception {
        RedissonClient client = clients.first();
        String name = names.get(0);
        return switch (kind) {
            case "reentrant" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "spin" -> client.getSpinLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "fenced" -> newer(client, "getFencedLock", name);
            case "non_reentrant" -> newer(client, "getNonReentrantLock", name);
            case "non_reentrant_fair" -> newer(client, "getNonReentrantFairLock", name);
            case "multi" -> client.getMultiLock(names.stream().map(client::getLock).toArray(RLock[]::new));
            case "red" -> redLock(name);
            default -> throw new IllegalArgumentException("no lock is called " + kind);
        };
    }

    @SuppressWarnings("deprecation") // Redisson advises against Redlock, and has it.
    private RLock redLock(String name) {
        RLock[] members = clients.all().stream().map(client -> client.getLock(name)).toArray(RLock[]::new);
        return clients.first().getRedLock(members);
    }

    private static RLock newer(RedissonClient client, String method, String name) throws Exception {
        Newer newer = Newer.method(RedissonClient.class.getName(), method, String.class);
        return (RLock) newer.invoke(client, name);
    }

    private Grant acquire(RLock lock, Call call) throws InterruptedException {
        OptionalLong wait = call.waiting();
        OptionalLong lease = call.lease();
        boolean granted = true;
        if (wait.isEmpty() && call.kind().matches("multi|red")) {
            // These do not lock interruptibly without a lease.
            lock.lock(lease.orElse(-1), MILLISECONDS);
        } else if (wait.isEmpty()) {
            lock.lockInterruptibly(lease.orElse(-1), MILLISECONDS);
        } else if (wait.getAsLong() == 0 && lease.isEmpty()) {
            granted = lock.tryLock();
        } else {
            granted = lock.tryLock(wait.getAsLong(), lease.orElse(-1), MILLISECONDS);
        }
        return granted ? new Grant(owner(), null, null) : null;
    }

    /** Fenced locks came after 3.16.8, so their methods are looked up. */
    private Grant acquireFenced(RLock lock, Call call) throws Exception {
        String type = "org.redisson.api.RFencedLock";
        OptionalLong wait = call.waiting();
        Object token;
        if (wait.isEmpty() && call.lease().isEmpty()) {
            token = Newer.method(type, "lockAndGetToken").invoke(lock);
        } else if (wait.isPresent() && wait.getAsLong() == 0) {
            // tryLockAndGetToken() without a wait waits for the lock. The latest token is that of the holder.
            Grant grant = acquire(lock, call);
            token = grant == null ? null : Newer.method(type, "getToken").invoke(lock);
        } else {
            Newer method =
                    Newer.method(type, "tryLockAndGetToken", long.class, long.class, TimeUnit.class);
            token = method.invoke(lock, wait.orElse(Long.MAX_VALUE / 2), call.lease().orElse(-1), MILLISECONDS);
        }
        return token == null ? null : new Grant(owner(), (Long) token, null);
    }

    private String owner() {
        return clients.first().getId() + ":" + Thread.currentThread().getId();
    }
}
