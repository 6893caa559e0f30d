package distlock.peer;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;

/** One request of the test. Times are in milliseconds. */
record Call(JsonObject json) {
    long id() {
        return json.get("id").getAsLong();
    }

    String thread() {
        return text("thread");
    }

    String operation() {
        return text("op");
    }

    String kind() {
        return text("kind");
    }

    String name() {
        return names().get(0);
    }

    List<String> names() {
        List<String> names = new ArrayList<>();
        json.getAsJsonArray("names").forEach(name -> names.add(name.getAsString()));
        return names;
    }

    /** How long to wait at most; without limit where it is empty, and zero is a single attempt. */
    OptionalLong waiting() {
        return number("wait");
    }

    /** The fixed lease; where it is empty the watchdog renews the hold. */
    OptionalLong lease() {
        return number("lease");
    }

    /** So long after now a number is to end. */
    long expireAfter() {
        return number("expire_after").orElseThrow();
    }

    int count() {
        return (int) number("count").orElse(1);
    }

    /** How long the hammer holds the lock each time. */
    long hold() {
        return number("hold").orElseThrow();
    }

    /** For how long the hammer works. */
    long time() {
        return number("time").orElseThrow();
    }

    String permit() {
        return text("permit");
    }

    private String text(String field) {
        JsonElement value = json.get(field);
        if (value == null || value.isJsonNull()) {
            throw new IllegalArgumentException("the request has no " + field + ": " + json);
        }
        return value.getAsString();
    }

    private OptionalLong number(String field) {
        JsonElement value = json.get(field);
        boolean missing = value == null || value.isJsonNull();
        return missing ? OptionalLong.empty() : OptionalLong.of(value.getAsLong());
    }
}
