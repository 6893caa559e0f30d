package distlock.peer;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.PrintStream;
import java.util.LinkedHashMap;
import java.util.Map;

/** Writes the answers, one JSON object a line. */
final class Answers {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    private final PrintStream output;

    Answers(PrintStream output) {
        this.output = output;
    }

    void ready(String client) {
        print(Map.of("ready", client));
    }

    void value(Call call, long began, Object value) {
        print(answer(call, began, "value", value));
    }

    /** An exception of Redisson, or a mistake of the test. */
    void error(Call call, long began, Throwable error) {
        String kind = error instanceof UnsupportedOperationException ? "missing" : "error";
        print(answer(call, began, kind, error.toString()));
    }

    /** On Linux, {@link System#nanoTime} is the monotonic clock of the machine, which is the same for all processes. */
    private static Map<String, Object> answer(Call call, long began, String kind, Object content) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", call.id());
        answer.put("began", began);
        answer.put("ended", System.nanoTime());
        answer.put(kind, content);
        return answer;
    }

    private synchronized void print(Map<String, Object> answer) {
        output.println(GSON.toJson(answer));
        output.flush();
    }
}
