//! The skels of all revisions, each as it ships, over models of its own revision's units.
//!
//! v73 adds products in groups of four and later ones in groups of eight; up to v75 floats are Qualcomm's, from v79 on
//! IEEE's. So v79 and v81 agree to the bit, and so does v73 with the native models; the others are near.

use crate::prompts::{KL, options};
use estream::{Device, KernelSet, Simulator};
use estream_tests::compare::compare;
use estream_tests::fixture;
use estream_tests::native::{assert_same, logits};
use estream_tests::simulator::{simulator, skel};
use std::collections::BTreeMap;

const REVISIONS: [&str; 4] = ["v73", "v75", "v79", "v81"];

#[test]
fn the_skels_of_all_revisions_are_near_and_where_instructions_agree_the_same() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = &golden.prompts[0].ids[..4];
    let reference = logits(&pack, &[ids], options()).remove(0);
    let mut others = BTreeMap::new();
    for revision in REVISIONS {
        let Some(skel) = skel(revision) else {
            let required = std::env::var_os("ESTREAM_REQUIRE_SIM").is_some_and(|value| value == "1");
            assert!(!required, "no skel of {revision}, and ESTREAM_REQUIRE_SIM=1: cargo xtask skel makes it");
            eprintln!("skipped: the skel of {revision} (not built)");
            continue;
        };
        let device = Device::Sim(Simulator { skel, ..simulator.clone() });
        let other = logits(&pack, &[ids], options().device(device).kernels(KernelSet::HEXAGON)).remove(0);
        let agreement = compare(reference.view(), other.view());
        println!("{revision}: {agreement:?}");
        assert!(agreement.kl_mean <= KL, "{revision}: {agreement:?}");
        others.insert(revision, other);
    }
    let same = |a: Option<_>, b: Option<_>, what| {
        if let (Some(a), Some(b)) = (a, b) {
            assert_same(a, b, what);
        }
    };
    same(Some(&reference), others.get("v73"), "v73 and the native models");
    same(others.get("v79"), others.get("v81"), "v79 and v81");
    if let (Some(v73), Some(v75)) = (others.get("v73"), others.get("v75")) {
        assert_ne!(v73, v75, "groups of four and of eight round alike: is it the other revision's model?");
    }
}
