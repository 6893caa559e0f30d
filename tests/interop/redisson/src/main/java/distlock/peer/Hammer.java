package distlock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RLock;

/** Acquires and releases one lock again and again, as a busy service would. */
record Hammer(long grants, long longest) {
    /** Counts the grants, and measures the longest wait in nanoseconds. */
    static Hammer run(RLock lock, Call call) throws InterruptedException {
        long end = System.nanoTime() + MILLISECONDS.toNanos(call.time());
        long grants = 0;
        long longest = 0;
        for (long called = System.nanoTime(); called < end; called = System.nanoTime()) {
            lock.lock();
            try {
                longest = Math.max(longest, System.nanoTime() - called);
                grants++;
                if (call.hold() > 0) {
                    Thread.sleep(call.hold());
                }
            } finally {
                lock.unlock();
            }
        }
        return new Hammer(grants, longest);
    }
}
