//! The names that the domain exports to a skel. This list is what a device is known to provide and the firmware uses; a
//! name that is not on it is an unresolved import, here as there.

use crate::{counts, hap, heap, power, qurt, resources};

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
    power::HAP_power_set as "HAP_power_set",
    resources::compute_resource_attr_init as "compute_resource_attr_init",
    resources::compute_resource_attr_set_serialize as "compute_resource_attr_set_serialize",
    resources::compute_resource_attr_set_hmx_param as "compute_resource_attr_set_hmx_param",
    resources::compute_resource_attr_set_vtcm_param as "compute_resource_attr_set_vtcm_param",
    resources::compute_resource_attr_set_vtcm_param_v2 as "compute_resource_attr_set_vtcm_param_v2",
    resources::compute_resource_attr_set_app_type as "compute_resource_attr_set_app_type",
    resources::compute_resource_attr_set_cache_mode as "compute_resource_attr_set_cache_mode",
    resources::compute_resource_attr_set_release_callback as "compute_resource_attr_set_release_callback",
    resources::compute_resource_attr_get_vtcm_ptr as "compute_resource_attr_get_vtcm_ptr",
    resources::compute_resource_attr_get_vtcm_ptr_v2 as "compute_resource_attr_get_vtcm_ptr_v2",
    resources::compute_resource_acquire as "compute_resource_acquire",
    resources::compute_resource_release as "compute_resource_release",
    resources::compute_resource_acquire_cached as "compute_resource_acquire_cached",
    resources::compute_resource_release_cached as "compute_resource_release_cached",
    resources::compute_resource_hmx_lock as "compute_resource_hmx_lock",
    resources::compute_resource_hmx_unlock as "compute_resource_hmx_unlock",
    resources::compute_resource_hmx_lock2 as "compute_resource_hmx_lock2",
    resources::compute_resource_hmx_unlock2 as "compute_resource_hmx_unlock2",
    resources::compute_resource_check_release_request as "compute_resource_check_release_request",
    resources::compute_resource_update_priority as "compute_resource_update_priority",
    qurt::qurt_hvx_lock as "qurt_hvx_lock",
    qurt::qurt_hvx_unlock as "qurt_hvx_unlock",
    qurt::qurt_hvx_get_units as "qurt_hvx_get_units",
    counts::estream_sim_mark as "estream_sim_mark",
    counts::estream_sim_mark_thread as "estream_sim_mark_thread",
    counts::estream_sim_count as "estream_sim_count",
    hap::compute_resource_query_VTCM as "compute_resource_query_VTCM",
    heap::memalign as "__wrap_memalign",
    heap::free as "__wrap_free",
    heap::memalign as "memalign",
    heap::free as "free",
}
