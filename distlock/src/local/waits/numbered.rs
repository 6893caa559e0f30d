//! Values by number, in blocks. A block whose values are all gone takes no memory.

/// How many values are in a block.
const BLOCK: usize = 64;

/// Values, each with a number that it keeps. Numbers of removed values are used again.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    blocks: Vec<Block<T>>,
    /// Blocks with room, each of them once. Some may be gone by now.
    with_room: Vec<usize>,
    len: usize,
}

#[derive(Debug)]
struct Block<T> {
    /// A bit for each value that is there.
    used: u64,
    values: Vec<Option<T>>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            with_room: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Block<T> {
    fn new(capacity: usize) -> Self {
        Self {
            used: 0,
            values: Vec::with_capacity(capacity),
        }
    }

    fn is_full(&self) -> bool {
        self.used == u64::MAX
    }

    /// Returns the place of the value. The block must have room.
    fn add(&mut self, value: T) -> usize {
        // The ones at the lower end are taken places, so their number is the first free place.
        let at = self.used.trailing_ones() as usize;
        self.used |= 1 << at;
        match self.values.get_mut(at) {
            Some(unused) => *unused = Some(value),
            None => self.values.push(Some(value)),
        }
        at
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        let value = self.values.get_mut(at)?.take()?;
        self.used &= !(1 << at);
        if self.used == 0 {
            // Not `clear`, which would keep the memory.
            self.values = Vec::new();
        }
        Some(value)
    }
}

impl<T> Numbered<T> {
    /// Adds a value, and returns its number.
    pub(crate) fn add(&mut self, value: T) -> usize {
        let block = self.block_with_room();
        self.len += 1;
        let at = self.blocks[block].add(value);
        if self.blocks[block].is_full() {
            // It is the last one of the list. `remove` lists it again: twice, if it stayed there.
            self.with_room.pop();
        }
        block * BLOCK + at
    }

    /// The last block of the list of those with room.
    fn block_with_room(&mut self) -> usize {
        while let Some(block) = self.with_room.last() {
            if *block < self.blocks.len() {
                return *block;
            }
            // It is gone.
            self.with_room.pop();
        }
        // The first block grows, since most clients never have another one.
        let capacity = if self.blocks.is_empty() { 0 } else { BLOCK };
        self.blocks.push(Block::new(capacity));
        self.with_room.push(self.blocks.len() - 1);
        self.blocks.len() - 1
    }

    pub(crate) fn remove(&mut self, number: usize) -> Option<T> {
        let at = number % BLOCK;
        let index = number / BLOCK;
        let block = self.blocks.get_mut(index)?;
        let was_full = block.is_full();
        let value = block.remove(at)?;
        let is_empty = block.used == 0;
        self.len -= 1;
        if was_full {
            self.with_room.push(index);
        }
        if is_empty {
            self.give_back_blocks();
        }
        Some(value)
    }

    /// Gives back the memory of empty blocks at the end.
    fn give_back_blocks(&mut self) {
        while self.blocks.len() > 1 && self.blocks.last().is_some_and(|last| last.used == 0) {
            self.blocks.pop();
        }
        // The two bounds are far apart, so that waiters who come and go do not move the list each time.
        if self.blocks.capacity() > 16 + 4 * self.blocks.len() {
            self.blocks.shrink_to(2 * self.blocks.len());
            self.with_room.retain(|block| *block < self.blocks.len());
            self.with_room.shrink_to(2 * self.with_room.len());
        }
    }

    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        let block = self.blocks.get(number / BLOCK)?;
        block.values.get(number % BLOCK)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        let block = self.blocks.get_mut(number / BLOCK)?;
        block.values.get_mut(number % BLOCK)?.as_mut()
    }

    /// A number above all that are in use.
    pub(crate) fn end(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks
            .iter()
            .flat_map(|block| block.values.iter().flatten())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let blocks = self.blocks.iter_mut();
        blocks.flat_map(|block| block.values.iter_mut().flatten())
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// For how many values there is memory.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.blocks
            .iter()
            .map(|block| block.values.capacity())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_of_a_crowd_is_given_back_also_if_a_late_one_stays() {
        let mut numbered = Numbered::default();
        let numbers: Vec<usize> = (0..100_000).map(|value| numbered.add(value)).collect();
        assert!(numbered.room() <= 100_000 + BLOCK);
        for number in &numbers[..99_999] {
            numbered.remove(*number);
        }
        assert_eq!(numbered.get(numbers[99_999]), Some(&99_999));
        assert!(numbered.room() <= BLOCK, "{}", numbered.room());
        // Those that come next fill the blocks that there are.
        let next: Vec<usize> = (0..BLOCK).map(|value| numbered.add(value)).collect();
        assert!(numbered.room() <= 2 * BLOCK, "{}", numbered.room());
        for number in next.into_iter().chain([numbers[99_999]]) {
            numbered.remove(number);
        }
        assert_eq!((numbered.len(), numbered.blocks.len()), (0, 1));
        assert!(numbered.room() == 0 && numbered.blocks.capacity() <= 32);
    }

    #[test]
    fn crowd_that_touches_a_full_block_again_and_again_takes_no_more_memory() {
        let mut numbered = Numbered::default();
        let mut there: VecDeque<usize> = (1..BLOCK).map(|value| numbered.add(value)).collect();
        for value in 0..10_000 {
            there.push_back(numbered.add(value));
            let first = there.pop_front();
            assert!(first.and_then(|number| numbered.remove(number)).is_some());
        }
        assert_eq!((numbered.blocks.len(), numbered.with_room.len()), (1, 1));
    }

    proptest! {
        #[test]
        fn random_values_come_and_go_under_numbers_of_their_own(
            steps in prop::collection::vec((0..400_usize, any::<bool>()), 1..1_000),
        ) {
            let mut numbered = Numbered::default();
            let mut there = Vec::new();
            for (value, (who, is_added)) in steps.into_iter().enumerate() {
                if is_added || there.is_empty() {
                    there.push((numbered.add(value), value));
                } else {
                    let (number, value) = there.swap_remove(who % there.len());
                    prop_assert_eq!(numbered.remove(number), Some(value));
                    prop_assert_eq!(numbered.remove(number), None);
                }
                prop_assert_eq!(numbered.len(), there.len());
                for (number, value) in &there {
                    prop_assert_eq!(numbered.get(*number), Some(value));
                }
                let listed: HashSet<&usize> = numbered.with_room.iter().collect();
                prop_assert_eq!(listed.len(), numbered.with_room.len());
                for (block, found) in numbered.blocks.iter().enumerate() {
                    prop_assert_eq!(listed.contains(&block), !found.is_full());
                }
            }
            let mut all: Vec<usize> = numbered.iter().copied().collect();
            let mut values: Vec<usize> = there.iter().map(|(_, value)| *value).collect();
            all.sort_unstable();
            values.sort_unstable();
            prop_assert_eq!(all, values);
        }
    }
}
