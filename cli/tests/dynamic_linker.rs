//! Variables of the dynamic linker (ld.so(8)): the program works with them.

use std::path::Path;

use crate::workbench::{Workbench, finish};

/// An allocator of its own that gives no memory back.
const ALLOCATOR: &str = r#"
    #include <errno.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>

    static char *at, *end;
    static volatile int lock;

    void *aligned_alloc(size_t align, size_t len) {
        if (align < 16) align = 16;
        while (__sync_lock_test_and_set(&lock, 1)) {}
        char *start = (char *)(((uintptr_t)at + 16 + align - 1) & ~(uintptr_t)(align - 1));
        if (!at || start + len > end) {
            size_t more = len + align + (64 << 20);
            at = mmap(0, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (at == MAP_FAILED) { at = end = 0; lock = 0; return 0; }
            end = at + more;
            start = (char *)(((uintptr_t)at + 16 + align - 1) & ~(uintptr_t)(align - 1));
        }
        at = start + len;
        ((size_t *)start)[-1] = len;
        __sync_lock_release(&lock);
        return start;
    }
    void *malloc(size_t len) { return aligned_alloc(16, len); }
    void *memalign(size_t align, size_t len) { return aligned_alloc(align, len); }
    void *calloc(size_t n, size_t each) { return malloc(n * each); }
    int posix_memalign(void **to, size_t align, size_t len) {
        return (*to = aligned_alloc(align, len)) ? 0 : ENOMEM;
    }
    size_t malloc_usable_size(void *p) { return p ? ((size_t *)p)[-1] : 0; }
    void free(void *p) { (void)p; }
    void *realloc(void *p, size_t len) {
        size_t before = malloc_usable_size(p);
        void *to = malloc(len);
        if (to && p) memcpy(to, p, before < len ? before : len);
        return to;
    }
"#;

/// Runs `farjump transports` with a variable, and demos over the usable ones, `most` of them.
fn demos_work(bench: &Workbench, variable: &str, value: &Path, most: usize) {
    // The default, the program itself, is large.
    let file = bench.write("file", "a panic here, and none there\n".repeat(1000));
    let list = finish(bench.farjump().args(["transports", "--json"]).env(variable, value)).worked().json();
    let all = list.as_array().expect("a list");
    let (usable, others): (Vec<_>, Vec<_>) = all.iter().partition(|backend| backend["usable"] == true);
    for backend in others {
        println!("skipped: {}: {}", backend["transport"], backend["why"]);
    }
    for backend in usable.into_iter().take(most) {
        let name = backend["transport"].as_str().expect("a name");
        let mut demo = bench.farjump();
        demo.args(["demo", "--json", "--transport", name]).arg(&file).env(variable, value);
        finish(&mut demo).worked();
    }
}

#[test]
fn a_demo_over_each_transport_works_with_an_allocator_by_ld_preload() {
    let bench = Workbench::new();
    let allocator = bench.plain_library("allocator", ALLOCATOR);
    demos_work(&bench, "LD_PRELOAD", &allocator, usize::MAX);
}

#[test]
fn a_demo_works_with_variables_of_the_dynamic_linker() {
    let bench = Workbench::new();
    demos_work(&bench, "LD_PRELOAD", &bench.path("nothing.so"), 1);
    demos_work(&bench, "LD_BIND_NOW", Path::new("1"), 1);
    demos_work(&bench, "LD_LIBRARY_PATH", &bench.path(""), 1);
}
