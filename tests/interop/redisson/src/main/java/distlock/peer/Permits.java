package distlock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.OptionalLong;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/** Semaphores whose permits have an id and a lease. */
record Permits(RedissonClient client) {
    Object perform(Call call) throws InterruptedException {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(call.name());
        return switch (call.operation()) {
            case "set_permits" -> semaphore.trySetPermits(call.count());
            case "add_permits" -> {
                semaphore.addPermits(call.count());
                yield true;
            }
            case "acquire" -> {
                String permit = acquire(semaphore, call);
                yield permit == null ? null : new Grant("", null, permit);
            }
            case "release" -> semaphore.tryRelease(call.permit());
            case "update_lease" ->
                    semaphore.updateLeaseTime(call.permit(), call.lease().orElseThrow(), MILLISECONDS);
            case "available" -> semaphore.availablePermits();
            default -> throw Operations.unknown(call);
        };
    }

    private static String acquire(RPermitExpirableSemaphore semaphore, Call call) throws InterruptedException {
        OptionalLong wait = call.waiting();
        long lease = call.lease().orElse(-1);
        if (wait.isEmpty()) {
            return semaphore.acquire(lease, MILLISECONDS);
        }
        return semaphore.tryAcquire(wait.getAsLong(), lease, MILLISECONDS);
    }
}
