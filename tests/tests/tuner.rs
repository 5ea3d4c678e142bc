//! The tuner against an exhaustive search, exactly: both in simulated time, on paper devices and shapes.
//!
//! The tuner sees what it would see on a machine: rates of reads, and one trace of 1,024 tokens for each candidate G. The
//! search runs the scheduler for every feasible (G, B) and takes the best. Regret is how much slower the tuner's choice
//! then really is.

use estream_idl::streaming::{Schedule, WHOLE_GROUPS};
use estream_tests::simulated::{Device, Looks, Reads, SHAPES, Settings, Shape, Workload, simulate};
use estream_tune::{Choice, GroupProfile, Profile, Rate, Rest, smallest_depth};
use std::collections::BTreeMap;

const TOKENS: u32 = 1024;
const DEPTHS: [u32; 4] = [1, 2, 4, 8];
/// Memory besides the arena, for every G alike.
const REST: u64 = 100 << 20;

/// Bytes a second with `depth` reads of a group in flight.
fn rate(device: &Device, bytes: u64, group: u32, depth: u32) -> Rate {
    let mut reads = Reads::new(*device, depth);
    let count = 8 * u64::from(depth);
    for _ in 0..count {
        reads.submit(bytes);
    }
    while let Some(time) = reads.next_end() {
        reads.advance(time);
    }
    Rate { group, depth, bytes_per_second: (count * bytes) as f64 / reads.now() as f64 * 1e9 }
}

fn settings(group: u32, banks: u32, depth: u32) -> Settings {
    Settings { schedule: Schedule::CrossLayer, group, banks, depth, gap: WHOLE_GROUPS }
}

/// Candidates of G: powers of two up to all experts.
fn candidates(shape: &Shape) -> impl Iterator<Item = u32> {
    (0..8).map(|power| 1 << power).filter(move |&group| group <= shape.experts)
}

/// What the tuner learns of a device and a shape.
fn profile(device: &Device, shape: &Shape, workload: &Workload) -> Profile {
    let record_bytes = u64::from(shape.record_bytes());
    let of_group = |group| DEPTHS.map(|depth| rate(device, record_bytes * u64::from(group), group, depth));
    let rates: Vec<_> = candidates(shape).flat_map(of_group).collect();
    let depth = smallest_depth(&rates).expect("rates were measured");
    let observe = |group| {
        // The profiling request itself runs in a middling arena.
        let traced = simulate(device, workload, settings(group, depth + 2, depth), Looks::BetweenOperators);
        GroupProfile::observe(group, Rest { resident: REST, streamed: None }, &traced.trace)
    };
    let groups = candidates(shape).map(observe).collect();
    let mut profile = Profile { tokens: TOKENS, record_bytes, dense_bytes: vec![], rates, depth, groups };
    profile.complete();
    profile
}

/// Simulated times of every (G, B) that was asked for, since budgets share most of them.
struct Search<'a> {
    device: &'a Device,
    workload: &'a Workload,
    times: BTreeMap<(u32, u32), u64>,
}

impl Search<'_> {
    fn time(&mut self, choice: &Choice) -> u64 {
        let (device, workload) = (self.device, self.workload);
        *self.times.entry((choice.group, choice.banks)).or_insert_with(|| {
            let settings = settings(choice.group, choice.banks, choice.depth);
            simulate(device, workload, settings, Looks::BetweenOperators).trace.total_ns()
        })
    }
}

#[test]
fn regret_on_three_shapes_and_three_budgets() {
    let mut regrets = vec![];
    for (device, skew) in [(Device::PHONE, 0.7), (Device::BOARD, 1.6), (Device::LAPTOP, 0.7)] {
        for shape in &SHAPES {
            let workload = shape.workload(&device, TOKENS, skew);
            let profile = profile(&device, shape, &workload);
            let least = profile.minimum();
            let experts = u64::from(shape.experts) * profile.record_bytes;
            let mut search = Search { device: &device, workload: &workload, times: BTreeMap::new() };
            for budget in [least + experts / 16, least + experts / 4, least + experts] {
                let choice = profile.choose(budget).expect("a budget above the least");
                assert!(choice.memory_bytes <= budget && choice.banks >= profile.depth, "{choice:?}");
                let (best, fastest) = profile
                    .choices(budget)
                    .map(|other| (search.time(&other), other))
                    .min_by_key(|(time, _)| *time)
                    .expect("a feasible candidate");
                let regret = search.time(&choice) as f64 / best as f64 - 1.0;
                println!(
                    "{:9} {:9} {:5} MiB: G {:3} B {:3} of {:3} Q {}, best G {:3} B {:3}: regret {:.3} %",
                    device.name,
                    shape.name,
                    budget >> 20,
                    choice.group,
                    choice.banks,
                    choice.most_banks,
                    choice.depth,
                    fastest.group,
                    fastest.banks,
                    100.0 * regret
                );
                regrets.push(regret);
            }
        }
    }
    regrets.sort_by(f64::total_cmp);
    let (median, worst) = (regrets[regrets.len() / 2], regrets[regrets.len() - 1]);
    println!(
        "{} budgets: regret {:.4} % median, {:.4} % worst",
        regrets.len(),
        100.0 * median,
        100.0 * worst
    );
    assert!(median == 0.0, "median regret {median}");
    assert!(worst <= 0.01, "worst regret {worst}");
}

#[test]
fn where_reads_are_slow_and_routing_is_skewed_more_banks_are_slower() {
    let (device, shape) = (Device::BOARD, &SHAPES[1]);
    let workload = shape.workload(&device, TOKENS, 2.5);
    let profile = profile(&device, shape, &workload);
    let choice = profile.choose(u64::MAX / 2).expect("any budget");
    let mut search = Search { device: &device, workload: &workload, times: BTreeMap::new() };
    let most = Choice { banks: choice.most_banks, ..choice };
    let (tuned, wide) = (search.time(&choice), search.time(&most));
    println!("{} banks: {tuned} ns, {} banks: {wide} ns", choice.banks, choice.most_banks);
    assert!(choice.banks < choice.most_banks, "{choice:?}");
    assert!(wide as f64 > 1.01 * tuned as f64, "{tuned} and {wide}");
}

#[test]
fn a_budget_below_the_least_is_refused_with_it_and_the_least_is_enough() {
    let (device, shape) = (Device::PHONE, &SHAPES[2]);
    let workload = shape.workload(&device, 64, 0.0);
    let profile = profile(&device, shape, &workload);
    let least = REST + u64::from(profile.depth) * profile.record_bytes;
    assert_eq!(profile.minimum(), least);
    assert_eq!(profile.choose(least - 1).expect_err("too small").minimum_bytes, least);
    let choice = profile.choose(least).expect("the least");
    assert_eq!((choice.group, choice.banks, choice.memory_bytes), (1, profile.depth, least));
}

#[test]
fn a_new_budget_from_a_stored_profile_takes_less_than_a_millisecond() {
    let (device, shape) = (Device::PHONE, &SHAPES[1]);
    let workload = shape.workload(&device, TOKENS, 0.7);
    let profile = profile(&device, shape, &workload);
    let began = std::time::Instant::now();
    for step in 1..=100u64 {
        profile.choose(profile.minimum() + step * (3 << 20)).expect("a budget above the least");
    }
    let each = began.elapsed() / 100;
    println!("a budget in {each:?}");
    assert!(each < std::time::Duration::from_millis(1), "{each:?}");
}
