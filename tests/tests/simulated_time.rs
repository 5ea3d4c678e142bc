//! Schedules in simulated time: the scheduler that ships on paper devices, exactly and on every machine alike.

use estream_idl::streaming::{Schedule, WHOLE_GROUPS};
use estream_tests::simulated::{Device, Layer, Looks, SHAPES, Settings, Simulated, Workload, simulate};
use estream_tune::{GroupTime, LayerTimes, Pipeline, pipe};
use proptest::prelude::*;

/// A setting with its name, as the command line has them.
fn schedules() -> [(&'static str, Settings); 8] {
    let plain = Settings { schedule: Schedule::CrossLayer, group: 2, banks: 16, depth: 4, gap: WHOLE_GROUPS };
    let with = |schedule| Settings { schedule, ..plain };
    [
        ("on-demand", with(Schedule::OnDemand)),
        ("after-routing", with(Schedule::AfterRouting)),
        ("early", with(Schedule::Early)),
        ("cross-layer", plain),
        ("naive", Settings { group: 1, banks: 3, depth: 1, ..plain }),
        ("layer-2", Settings { group: u32::MAX, banks: 2, depth: 2, ..plain }),
        ("layer-all", Settings { group: u32::MAX, banks: u32::MAX, depth: 2, ..plain }),
        ("resident", with(Schedule::Resident)),
    ]
}

fn line(name: &str, tokens: u32, simulated: &Simulated) -> String {
    let trace = &simulated.trace;
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "{name:14} {tokens:6} {:10.2} {:10.2} {:10.2} {:7.1} {:8.0} {:8}\n",
        ms(trace.total_ns()),
        ms(trace.reading_ns()),
        ms(trace.computing_ns()),
        100.0 * trace.bubble_rate(),
        trace.bytes() as f64 / f64::from(1 << 20),
        simulated.counters.speculative,
    )
}

#[test]
fn schedules_on_paper_devices() {
    let mut table = String::new();
    for device in &Device::ALL {
        table += &format!("\n{}, an OLMoE with skewed routing\n", device.name);
        table += "schedule       tokens   total ms    read ms compute ms bubble %  MiB read in vain\n";
        for tokens in [32, 256, 1024] {
            let workload = SHAPES[0].workload(device, tokens, 1.0);
            for (name, settings) in schedules() {
                let simulated = simulate(device, &workload, settings, Looks::BetweenOperators);
                table += &line(name, tokens, &simulated);
            }
        }
    }
    insta::assert_snapshot!("paper_devices", table);
}

/// Total times in the order of [`schedules`].
fn totals(device: &Device, workload: &Workload) -> Vec<u64> {
    let total = |(_, settings)| simulate(device, workload, settings, Looks::AtOnce).trace.total_ns();
    schedules().map(total).into()
}

#[test]
fn each_step_of_overlap_gains_where_everything_is_routed() {
    for device in &Device::ALL {
        // So many tokens that no group is left without routes, and nothing is read in vain.
        let workload = SHAPES[0].workload(device, 512, 0.0);
        assert!(workload.layers.iter().all(|layer| layer.rows.iter().all(|&rows| rows > 0)));
        let totals = totals(device, &workload);
        let [on_demand, after_routing, early, cross_layer, naive, .., resident] = totals[..] else {
            panic!("eight schedules")
        };
        assert!(on_demand > after_routing && after_routing > early && early >= cross_layer, "{totals:?}");
        assert!(naive >= cross_layer && cross_layer >= resident, "{totals:?}");
        // The pass takes the slower of its two sides, and little more than the first load and the last group.
        let simulated = simulate(device, &workload, schedules()[3].1, Looks::AtOnce);
        let trace = &simulated.trace;
        let longer = trace.reading_ns().max(trace.computing_ns());
        assert!(trace.total_ns() as f64 <= 1.05 * longer as f64, "{}: {longer} of {trace:?}", device.name);
    }
}

#[test]
fn the_resident_pass_reads_nothing_and_computes_all_the_time() {
    let workload = SHAPES[0].workload(&Device::PHONE, 128, 1.0);
    let settings = schedules()[7].1;
    let trace = simulate(&Device::PHONE, &workload, settings, Looks::BetweenOperators).trace;
    assert_eq!((trace.bytes(), trace.reading_ns()), (0, 0));
    assert_eq!(trace.total_ns(), trace.computing_ns());
}

#[test]
fn a_gap_saves_bytes_and_every_routed_record_is_still_read() {
    let device = Device::BOARD;
    let workload = SHAPES[0].workload(&device, 4, 0.0);
    let whole =
        Settings { schedule: Schedule::AfterRouting, group: 8, banks: 4, depth: 2, gap: WHOLE_GROUPS };
    let record = u64::from(workload.layers[0].record_bytes);
    let routed: u64 =
        workload.layers.iter().flat_map(|layer| &layer.rows).map(|&rows| u64::from(rows > 0)).sum();
    let bytes = |gap| simulate(&device, &workload, Settings { gap, ..whole }, Looks::AtOnce).trace.bytes();
    // Nothing is read before the routes are known, so with no gap exactly the routed records are read.
    assert_eq!(bytes(0), routed * record);
    assert!(bytes(0) < bytes((record / 4096) as u32) && bytes((record / 4096) as u32) <= bytes(WHOLE_GROUPS));
}

/// Layers on paper with odd times, so that events seldom coincide; `density` is the share of groups with routes.
fn workloads() -> impl Strategy<Value = Workload> {
    let rows = proptest::collection::vec(0..4u32, 1..14);
    let layer = (1..900u64, 0..500u64, 1..300u64, rows);
    proptest::collection::vec(layer, 1..5).prop_map(|layers| {
        let layer = |(mixer, unit, row, rows): (u64, u64, u64, Vec<u32>)| Layer {
            record_bytes: 4096,
            mixer_ns: 1000 * mixer + 1,
            unit_ns: 1000 * unit,
            call_ns: 17,
            row_ns: 1000 * row,
            rows,
        };
        Workload { layers: layers.into_iter().map(layer).collect(), embed_ns: 0, head_ns: 0 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Where the engine notices everything at once, the recurrence is the scheduler: to the nanosecond, also with groups
    /// that nobody wants.
    #[test]
    fn the_recurrence_is_the_scheduler(
        workload in workloads(),
        group in 1..5u32,
        banks in 1..9u32,
        depth in 1..5u32,
        load in 1..400u64,
    ) {
        // Each reader has a stream of its own, and a load of a group takes 1000 · load + 3 ns with as many bytes.
        let largest = workload.layers.iter().map(|layer| layer.rows.len()).max().unwrap_or(1) as u32;
        let group = group.min(largest);
        let device = Device { name: "", latency_ns: 1000 * load, stream: 4096e9, total: f64::MAX, macs: 1.0 };
        let settings = Settings { schedule: Schedule::CrossLayer, group, banks, depth, gap: WHOLE_GROUPS };
        let simulated = simulate(&device, &workload, settings, Looks::AtOnce);
        let entries: u32 = workload.layers.iter().map(|layer| (layer.rows.len() as u32).div_ceil(group)).sum();
        let layers: Vec<_> = workload.layers.iter().map(|layer| times(layer, group, 1000 * load)).collect();
        let expected = pipe(&layers, Pipeline { depth, banks: banks.min(entries) });
        prop_assert_eq!(simulated.trace.total_ns(), expected);
    }
}

/// A layer as the recurrence has it; a record takes a nanosecond to flow.
fn times(layer: &Layer, group: u32, latency: u64) -> LayerTimes {
    let time = |rows: &[u32]| {
        let run = |rows: &u32| layer.call_ns + u64::from(*rows) * layer.row_ns;
        let wanted: Vec<_> = rows.iter().filter(|&&rows| rows > 0).collect();
        let run_ns = (!wanted.is_empty()).then(|| wanted.into_iter().map(run).sum());
        GroupTime { load_ns: latency + rows.len() as u64, run_ns }
    };
    LayerTimes {
        routed_ns: layer.mixer_ns,
        open_ns: layer.mixer_ns + layer.unit_ns,
        dense_ns: 0,
        groups: layer.rows.chunks(group as usize).map(time).collect(),
    }
}
