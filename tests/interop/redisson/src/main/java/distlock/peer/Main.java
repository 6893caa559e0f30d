package distlock.peer;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Redisson behind a line protocol: a test writes one JSON object a line to the standard input, and reads the answers
 * from the standard output. The protocol is described in README.md.
 */
public final class Main {
    private Main() {}

    /** What the program is started with, as JSON in its only argument. */
    record Settings(String[] urls, long watchdog) {}

    public static void main(String[] args) throws Exception {
        Answers answers = new Answers(System.out);
        // Libraries that print would break the protocol.
        System.setOut(System.err);
        Settings settings = new Gson().fromJson(args[0], Settings.class);
        Clients clients = Clients.connect(settings.urls(), settings.watchdog());
        answers.ready(clients.first().getId());

        Map<String, Worker> workers = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            Call call = new Call(request);
            Worker worker = workers.computeIfAbsent(call.thread(), name -> Worker.start(name, clients, answers));
            switch (call.operation()) {
                case "interrupt" -> {
                    worker.interruptCall();
                    answers.value(call, System.nanoTime(), true);
                }
                case "is_asleep" -> answers.value(call, System.nanoTime(), worker.isAsleep());
                default -> worker.accept(call);
            }
        }
        clients.shutdown();
        // Threads may still wait for locks.
        Runtime.getRuntime().halt(0);
    }
}
