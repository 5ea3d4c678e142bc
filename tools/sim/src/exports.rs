//! The names that the domain exports to a skel. This list is what a device is known to provide and the firmware uses; a
//! name that is not on it is an unresolved import, here as there.

use crate::{hap, heap, qurt};

macro_rules! exports {
    ($($module:ident :: $name:ident as $imported:literal),* $(,)?) => {
        /// The address behind an imported name.
        #[must_use]
        pub fn address(name: &str) -> Option<u32> {
            match name {
                $($imported => Some($module::$name as *const () as u32),)*
                _ => None,
            }
        }
    };
}

exports! {
    qurt::qurt_thread_create as "qurt_thread_create",
    qurt::qurt_thread_exit as "qurt_thread_exit",
    qurt::qurt_thread_join as "qurt_thread_join",
    qurt::qurt_thread_get_id as "qurt_thread_get_id",
    qurt::qurt_thread_get_priority as "qurt_thread_get_priority",
    qurt::qurt_sleep as "qurt_sleep",
    qurt::qurt_sysenv_get_max_hw_threads as "qurt_sysenv_get_max_hw_threads",
    qurt::qurt_futex_wait as "qurt_futex_wait",
    qurt::qurt_futex_wake as "qurt_futex_wake",
    hap::HAP_perf_qtimer_count_to_us as "HAP_perf_qtimer_count_to_us",
    hap::HAP_debug as "HAP_debug",
    hap::HAP_mmap_get as "HAP_mmap_get",
    hap::HAP_mmap_put as "HAP_mmap_put",
    hap::compute_resource_query_VTCM as "compute_resource_query_VTCM",
    heap::memalign as "__wrap_memalign",
    heap::free as "__wrap_free",
    heap::memalign as "memalign",
    heap::free as "free",
}
