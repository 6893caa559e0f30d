use distlock::Lock;

struct Greedy;

struct Shop {
    orders: Lock<Greedy>,
}

fn main() {}
