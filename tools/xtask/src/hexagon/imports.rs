//! What a skel may ask of the protection domain. The loader fails the whole skel for one name that it does not find,
//! unless the reference is weak: every import is here with the reason why it is safe, and a new one is a decision.

/// How an import may be referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    /// Every image that runs skels has it.
    Strong,
    /// Some images lack it; the firmware has a fallback.
    Weak,
}

use Strength::{Strong, Weak};

/// Name, how it may be referenced, why.
pub(crate) const ALLOWED: [(&str, Strength, &str); 36] = [
    ("qurt_thread_create", Strong, "the engine and its workers; imported by every open skel that computes"),
    ("qurt_thread_exit", Strong, "comes with qurt_thread_create"),
    ("qurt_thread_join", Strong, "comes with qurt_thread_create"),
    ("qurt_thread_get_id", Strong, "to start threads at the caller's priority"),
    ("qurt_thread_get_priority", Strong, "to start threads at the caller's priority"),
    ("qurt_sleep", Strong, "a doorbell's nap; imported by shipping skels"),
    ("qurt_sysenv_get_max_hw_threads", Strong, "how many workers; imported by shipping skels"),
    ("HAP_perf_qtimer_count_to_us", Strong, "the clock; imported by shipping skels"),
    ("HAP_mmap_get", Strong, "the shared memory; imported by shipping skels"),
    ("HAP_mmap_put", Strong, "comes with HAP_mmap_get"),
    ("qurt_futex_wait", Weak, "an inline trap on some images: naps stand in"),
    ("qurt_futex_wake", Weak, "an inline trap on some images: naps stand in"),
    ("__wrap_memalign", Weak, "the vendor's linker renames it: the plain name stands in"),
    ("__wrap_free", Weak, "the vendor's linker renames it: the plain name stands in"),
    ("memalign", Weak, "missing on some images: the wrapped name stands in"),
    ("free", Weak, "missing on some images: the wrapped name stands in"),
    (
        "compute_resource_query_VTCM",
        Weak,
        "a header inline over a weak symbol: without it the planner refuses",
    ),
    ("HAP_debug", Weak, "a log must not be why a skel does not load"),
    ("HAP_power_set", Weak, "the matrix unit needs a vote: without it the kernels are the scalar ones"),
    ("qurt_hvx_lock", Weak, "some images give every thread a vector context"),
    ("qurt_hvx_unlock", Weak, "comes with qurt_hvx_lock"),
    ("qurt_hvx_get_units", Weak, "comes with qurt_hvx_lock"),
    ("estream_sim_mark", Weak, "a simulator's: nobody provides it on a device"),
    ("estream_sim_mark_thread", Weak, "comes with estream_sim_mark"),
    (
        "compute_resource_attr_init",
        Weak,
        "a header inline over a weak symbol: without it the kernels are the scalar ones",
    ),
    ("compute_resource_attr_set_vtcm_param", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_attr_set_hmx_param", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_attr_set_cache_mode", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_attr_set_release_callback", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_attr_get_vtcm_ptr", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_acquire", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_release", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_acquire_cached", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_release_cached", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_hmx_lock", Weak, "comes with compute_resource_attr_init"),
    ("compute_resource_hmx_unlock", Weak, "comes with compute_resource_attr_init"),
];

/// How `name` may be referenced, or `None` where it is not on the list.
pub(crate) fn strength(name: &str) -> Option<Strength> {
    ALLOWED.iter().find(|(allowed, ..)| *allowed == name).map(|&(_, strength, _)| strength)
}
