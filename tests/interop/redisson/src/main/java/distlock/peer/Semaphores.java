package distlock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.OptionalLong;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Semaphores whose permits have no lease. */
record Semaphores(RedissonClient client) {
    Object perform(Call call) throws InterruptedException {
        RSemaphore semaphore = client.getSemaphore(call.name());
        return switch (call.operation()) {
            case "set_permits" -> semaphore.trySetPermits(call.count());
            case "acquire" -> acquire(semaphore, call) ? new Grant("", null, null) : null;
            case "release" -> {
                semaphore.release(call.count());
                yield true;
            }
            case "add_permits" -> {
                semaphore.addPermits(call.count());
                yield true;
            }
            case "drain" -> semaphore.drainPermits();
            case "available" -> semaphore.availablePermits();
            default -> throw Operations.unknown(call);
        };
    }

    private static boolean acquire(RSemaphore semaphore, Call call) throws InterruptedException {
        OptionalLong wait = call.waiting();
        if (wait.isEmpty()) {
            semaphore.acquire(call.count());
            return true;
        }
        if (wait.getAsLong() == 0) {
            return semaphore.tryAcquire(call.count());
        }
        return semaphore.tryAcquire(call.count(), wait.getAsLong(), MILLISECONDS);
    }
}
