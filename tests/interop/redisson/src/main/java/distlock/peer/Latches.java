package distlock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.OptionalLong;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

/** Count-down latches. */
record Latches(RedissonClient client) {
    Object perform(Call call) throws InterruptedException {
        RCountDownLatch latch = client.getCountDownLatch(call.name());
        return switch (call.operation()) {
            case "set_count" -> latch.trySetCount(call.count());
            case "count_down" -> {
                latch.countDown();
                yield true;
            }
            case "count" -> latch.getCount();
            case "await" -> await(latch, call.waiting());
            default -> throw Operations.unknown(call);
        };
    }

    private static boolean await(RCountDownLatch latch, OptionalLong wait) throws InterruptedException {
        if (wait.isPresent()) {
            return latch.await(wait.getAsLong(), MILLISECONDS);
        }
        latch.await();
        return true;
    }
}
