//! The pool on real threads; its wait and wake protocol is explored by loom elsewhere (`idl/tests/loom_wake.rs`).

use super::*;
use core::sync::atomic::AtomicU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec;
use std::vec::Vec;

/// Pools of one to four workers.
fn pools() -> impl Iterator<Item = Pool<'static>> {
    (1..=4).map(|threads| {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads);
        pool
    })
}

fn spin_ns(nanoseconds: u64) {
    let began = crate::platform::now_ns();
    while crate::platform::now_ns() - began < nanoseconds {}
}

#[test]
fn every_task_runs_exactly_once() {
    for pool in pools() {
        for tasks in [0, 1, 2, 3, 7, 64, 1000] {
            let calls: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            pool.run(tasks, &|worker, task| {
                assert!(worker < pool.threads());
                calls[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn helpers_do_help() {
    let pool = Pool::new(3).unwrap();
    let by_worker: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    // Tasks of 100 µs for as long as it takes a busy machine to let the helpers in.
    let began = crate::platform::now_ns();
    while by_worker.iter().any(|tasks| tasks.load(Ordering::Relaxed) == 0) {
        assert!(crate::platform::now_ns() - began < 60_000_000_000, "a helper never came: {by_worker:?}");
        pool.run(32, &|worker, _| {
            spin_ns(100_000);
            by_worker[worker].fetch_add(1, Ordering::Relaxed);
        });
    }
}

#[test]
fn ten_thousand_tiny_jobs_neither_hang_nor_lose_a_task() {
    for pool in pools() {
        let sum = AtomicU64::new(0);
        for job in 0..10_000u64 {
            let tasks = 2 + job as usize % 3;
            pool.run(tasks, &|_, task| {
                sum.fetch_add(job * 8 + task as u64, Ordering::Relaxed);
            });
            if job % 1000 == 0 {
                spin_ns(60_000); // long enough for the helpers to fall asleep
            }
        }
        let expected: u64 =
            (0..10_000u64).map(|job| (0..2 + job % 3).map(|task| job * 8 + task).sum::<u64>()).sum();
        assert_eq!(sum.into_inner(), expected);
    }
}

#[test]
fn blocks_cover_the_grid_exactly_once() {
    let (rows, stride) = (37, 83);
    let mut data = vec![0.0f32; rows * stride];
    let mut scratch = vec![0.0f32; 4 * 64 + 5];
    // Each block adds its own number to its own elements: a wrong, missing or doubled block shows in the sum.
    let number = |mut block: Block<'_>, number: usize| {
        for row in 0..block.rows() {
            for x in block.row(row) {
                *x += number as f32;
            }
        }
    };
    let check = |data: &mut Vec<f32>, expected: &dyn Fn(usize, usize) -> usize| {
        for (index, x) in data.iter_mut().enumerate() {
            assert_eq!(*x, expected(index / stride, index % stride) as f32, "element {index}");
            *x = 0.0;
        }
    };
    for pool in pools() {
        for size in [1, 8, 32, 83, 500] {
            let grid = Grid::new(&mut data, stride);
            pool.columns(grid, size, &mut scratch, &|strip, block, _| number(block, 1 + strip));
            check(&mut data, &|_, column| 1 + column / size);

            let grid = Grid::new(&mut data, stride);
            pool.rows(grid, size, &mut [], &|first, block, _| number(block, 1 + first));
            check(&mut data, &|row, _| 1 + row / size * size);

            let grid = Grid::new(&mut data, stride);
            pool.tiles(grid, size, 32, &mut scratch, &|row, column, block, _| {
                number(block, 1 + row * 100 + column);
            });
            check(&mut data, &|row, column| 1 + row / size * 100 + column / 32);
        }
    }
}

#[test]
fn an_empty_grid_has_no_blocks() {
    for pool in pools() {
        for (rows, stride) in [(0, 5), (0, 1)] {
            let mut data = vec![0.0f32; rows * stride];
            pool.columns(Grid::new(&mut data, stride), 2, &mut [], &|_, block, _| {
                assert_eq!(block.rows(), 0)
            });
            pool.rows(Grid::new(&mut data, stride), 2, &mut [], &|_, _, _| panic!("no rows"));
        }
    }
}

#[test]
fn scratch_is_the_workers_own() {
    for pool in pools() {
        let length = pool.threads() * 64 + 31;
        assert_eq!(pool.share(length), 64);
        let mut scratch = vec![-1.0f32; length];
        let mut data = vec![0.0f32; 200];
        pool.columns(Grid::new(&mut data, 200), 1, &mut scratch, &|strip, mut block, scratch| {
            assert_eq!(scratch.len(), 64);
            scratch.fill(strip as f32);
            spin_ns(5_000);
            // Nobody else wrote here meanwhile.
            assert!(scratch.iter().all(|&x| x == strip as f32));
            block.row(0)[0] = scratch[63];
        });
        assert!(data.iter().enumerate().all(|(strip, &x)| x == strip as f32));
        assert!(scratch[pool.threads() * 64..].iter().all(|&x| x == -1.0));
    }
}

#[test]
fn a_job_inside_a_job_and_jobs_from_two_threads_are_done_inline() {
    for pool in pools() {
        let count = AtomicUsize::new(0);
        let inner = || pool.run(5, &|_, _| _ = count.fetch_add(1, Ordering::Relaxed));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|_| inner()));
            pool.run(20, &|_, _| inner());
        });
        assert_eq!(count.into_inner(), 5 * 120);
    }
}

#[test]
fn a_panic_in_a_task_surfaces_after_the_job_and_leaves_the_pool_usable() {
    for pool in pools() {
        for bad in [0, 1, 17] {
            let done = AtomicUsize::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(40, &|_, task| {
                    assert!(task != bad, "the task that the test breaks");
                    spin_ns(20_000);
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }));
            assert!(outcome.is_err());
            let then = done.load(Ordering::Relaxed);
            pool.run(8, &|_, _| _ = done.fetch_add(1, Ordering::Relaxed));
            assert_eq!(done.into_inner(), then + 8, "no task of the broken job ran after it");
        }
    }
}

#[test]
fn a_pool_has_one_to_sixty_four_workers() {
    assert_eq!(Pool::new(0).err(), Some(Status::BadConfig));
    assert_eq!(Pool::new(MAX_THREADS + 1).err(), Some(Status::BadConfig));
    let pool = Pool::new(MAX_THREADS).unwrap();
    let sum = AtomicUsize::new(0);
    pool.run(500, &|_, task| _ = sum.fetch_add(task, Ordering::Relaxed));
    assert_eq!(sum.into_inner(), 499 * 500 / 2);
}

#[test]
fn dropping_the_pool_joins_its_threads() {
    /// Counts the threads that are gone with all they had.
    struct Gone;
    static GONE: AtomicUsize = AtomicUsize::new(0);
    impl Drop for Gone {
        fn drop(&mut self) {
            spin_ns(5_000_000);
            GONE.fetch_add(1, Ordering::Release);
        }
    }
    std::thread_local!(static LIFE: Gone = const { Gone });

    let pool = Pool::new(4).unwrap();
    let seen: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];
    while !seen[1..].iter().all(|seen| seen.load(Ordering::Relaxed)) {
        pool.run(8, &|worker, _| {
            if worker > 0 {
                LIFE.with(|_| ());
            }
            seen[worker].store(true, Ordering::Relaxed);
            spin_ns(50_000);
        });
    }
    drop(pool);
    assert_eq!(GONE.load(Ordering::Acquire), 3);
}

#[test]
fn spread_tasks_are_all_tasks_and_neighbours_come_from_one_share() {
    for (count, shares) in [(1, 1), (7, 1), (2, 5), (32, 2), (33, 4), (64, 3)] {
        let places: Vec<usize> = (0..count).map(|number| super::spread(number, count, shares)).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..count), "{count} tasks in {shares} shares: {places:?}");
        for share in 0..shares.min(count) {
            let taken: Vec<usize> = places.iter().copied().skip(share).step_by(shares).collect();
            assert!(taken.windows(2).all(|pair| pair[1] == pair[0] + 1), "{taken:?}");
        }
    }
}

#[test]
fn tables_are_cut_into_the_same_rows_and_every_row_is_seen_once() {
    for pool in pools() {
        for (rows, height) in [(0, 3), (1, 1), (7, 2), (64, 5)] {
            let (mut a, mut b) = (vec![0u16; rows * 3], vec![0u64; rows]);
            pool.tables(rows, height, (&mut a, &mut b, &mut [0f32; 0]), &|first, a, b, none| {
                assert!(a.len() == 3 * b.len() && b.len() <= height && none.is_empty());
                for (row, (a, b)) in a.chunks_exact_mut(3).zip(b).enumerate() {
                    a.iter_mut().for_each(|a| *a += (first + row) as u16 + 1);
                    *b += (first + row) as u64 + 1;
                }
            });
            assert!(a.iter().enumerate().all(|(at, &a)| usize::from(a) == at / 3 + 1), "{rows} by {height}");
            assert!(b.iter().enumerate().all(|(at, &b)| b == at as u64 + 1), "{rows} by {height}");
        }
    }
    let pool = pools().next().expect("a pool");
    let ragged = catch_unwind(AssertUnwindSafe(|| {
        pool.tables(2, 1, (&mut [0u8; 3], &mut [0u8; 2], &mut [0u8; 2]), &|_, _, _, _| ());
    }));
    assert!(ragged.is_err(), "three elements are no two rows");
}
