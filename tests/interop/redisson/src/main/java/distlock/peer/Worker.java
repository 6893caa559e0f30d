package distlock.peer;

import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A Java thread with a name in the test. Its calls run one after the other. In Redisson the thread is the owner. */
final class Worker extends Thread {
    /** Where Redisson's waiters sleep: those for locks and permits, and those for count-down latches. */
    private static final Set<String> LATCHES =
            Set.of("java.util.concurrent.Semaphore", "org.redisson.misc.ReclosableLatch");

    private final BlockingQueue<Call> calls = new LinkedBlockingQueue<>();
    private final Operations operations;
    private final Answers answers;
    private boolean calling;

    private Worker(String name, Clients clients, Answers answers) {
        super(name);
        this.operations = new Operations(clients);
        this.answers = answers;
        setDaemon(true);
    }

    static Worker start(String name, Clients clients, Answers answers) {
        Worker worker = new Worker(name, clients, answers);
        worker.start();
        return worker;
    }

    void accept(Call call) {
        calls.add(call);
    }

    /** Interrupts the call that runs, if one does. */
    synchronized void interruptCall() {
        if (calling) {
            interrupt();
        }
    }

    /** Whether it sleeps until Redisson is told of a message. While it waits for a reply it is not in one of these classes. */
    boolean isAsleep() {
        boolean isInLatch = Arrays.stream(getStackTrace()).map(StackTraceElement::getClassName).anyMatch(LATCHES::contains);
        return isInLatch && (getState() == State.WAITING || getState() == State.TIMED_WAITING);
    }

    @Override
    public void run() {
        while (true) {
            try {
                perform(calls.take());
            } catch (InterruptedException e) {
                throw new AssertionError("only calls are interrupted", e);
            }
        }
    }

    private void perform(Call call) {
        setCalling(true);
        long began = System.nanoTime();
        Object value = null;
        Throwable error = null;
        try {
            value = operations.perform(call);
        } catch (Exception | LinkageError e) {
            error = e;
        }
        setCalling(false);
        if (error == null) {
            answers.value(call, began, value);
        } else {
            answers.error(call, began, error);
        }
    }

    /** An interrupt that comes too late for its call must not meet the next one. */
    private synchronized void setCalling(boolean calling) {
        this.calling = calling;
        Thread.interrupted();
    }
}
