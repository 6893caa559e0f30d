import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RBucket;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** A seller in Java. The one in Rust, main.rs, uses the same lock and does the same. */
public final class Seller {
    private final RLock lock;
    private final RBucket<String> stock;
    private final RMap<String, String> sold;

    private Seller(RedissonClient redisson) {
        lock = redisson.getFairLock("example:tea:lock");
        stock = redisson.getBucket("example:tea", StringCodec.INSTANCE);
        sold = redisson.getMap("example:tea:sold", StringCodec.INSTANCE);
    }

    public static void main(String[] args) throws InterruptedException {
        Config config = new Config();
        config.useSingleServer().setAddress(args[0]);
        RedissonClient redisson = Redisson.create(config);
        Seller seller = new Seller(redisson);
        boolean isOneSold = true;
        while (isOneSold) {
            seller.lock.lock();
            try {
                isOneSold = seller.sell(args[1]);
            } finally {
                seller.lock.unlock();
            }
        }
        redisson.shutdown();
    }

    /** Sells a packet. Returns whether there was one. */
    private boolean sell(String name) throws InterruptedException {
        int left = Integer.parseInt(stock.get());
        if (left == 0) {
            return false;
        }
        Thread.sleep(1);
        stock.set(Integer.toString(left - 1));
        sold.addAndGet(name, 1);
        return true;
    }
}
