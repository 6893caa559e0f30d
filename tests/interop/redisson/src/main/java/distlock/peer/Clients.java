package distlock.peer;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisConnectionException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** A Redisson client for each server. There are several only for Redlocks. */
record Clients(List<RedissonClient> all) {
    /** A Redlock has to get past a server that hangs. Not for other locks: a busy machine is late as well. */
    private static final int REDLOCK_TIMEOUT = 1000;

    private static final int MOST_TRIES = 5;

    /** Connects to URLs in the form that distlock has for them: one server, a set with Sentinels, or a cluster. */
    static Clients connect(String[] urls, long watchdog) {
        List<RedissonClient> all = new ArrayList<>();
        for (String url : urls) {
            all.add(create(config(url, watchdog, urls.length > 1)));
        }
        return new Clients(all);
    }

    /** On a busy machine the first replies may come too late. */
    private static RedissonClient create(Config config) {
        for (int tries = 1; tries < MOST_TRIES; tries++) {
            try {
                return Redisson.create(config);
            } catch (RedisConnectionException e) {
                System.err.println("connects again: " + e.getMessage());
            }
        }
        return Redisson.create(config);
    }

    RedissonClient first() {
        return all.get(0);
    }

    void shutdown() {
        all.forEach(RedissonClient::shutdown);
    }

    private static Config config(String url, long watchdog, boolean forRedlock) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.setLockWatchdogTimeout(watchdog);
        URI uri = URI.create(url);
        String[] hosts = uri.getAuthority().split(",");
        switch (uri.getScheme()) {
            case "redis" -> {
                var server = config.useSingleServer().setAddress(url);
                server.setConnectionMinimumIdleSize(2).setSubscriptionConnectionMinimumIdleSize(1);
                if (forRedlock) {
                    server.setTimeout(REDLOCK_TIMEOUT).setRetryAttempts(0);
                }
            }
            case "redis+cluster" -> {
                var servers = config.useClusterServers().setScanInterval(1000);
                servers.setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
                for (String host : hosts) {
                    servers.addNodeAddress("redis://" + host);
                }
            }
            case "redis+sentinel" -> {
                var servers = config.useSentinelServers().setScanInterval(1000);
                servers.setMasterName(uri.getPath().substring(1));
                servers.setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
                for (String host : hosts) {
                    servers.addSentinelAddress("redis://" + host);
                }
            }
            default -> throw new IllegalArgumentException("no server has a URL like " + url);
        }
        return config;
    }
}
