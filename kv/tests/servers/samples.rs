//! The samples.

use farjump::{Library, Link};
use farjump_fixtures::process::PATIENCE;

use crate::server::{Start, library, on_each};

/// A vector whose values differ from those of others.
fn vector(index: usize) -> Vec<f32> {
    (0..32).map(|value| ((index * 37 + value * 11) % 101) as f32).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn the_nearest_of_many_vectors_is_found() {
    on_each(|program| {
        let server = Start::new(program).run();
        let all: Vec<Vec<f32>> = (0..1000).map(vector).collect();
        let blob: Vec<u8> = all.iter().flat_map(|values| bytes(values)).collect();
        server.client().run(&[b"SET", b"vectors", &blob]).worked();
        let (link, nearest) = (server.link(), library("nearest"));
        let call = |query: &[f32]| {
            let payload = [b"vectors\0".to_vec(), bytes(query)].concat();
            link.inject(&nearest, &payload).unwrap().wait(PATIENCE).unwrap().into_vec()
        };
        for wanted in [0, 1, 50, 100] {
            let mut query = vector(wanted);
            query[3] += 0.25;
            let reply = call(&query);
            assert_eq!(u64::from_le_bytes(reply[..8].try_into().unwrap()), wanted as u64);
            assert_eq!(f32::from_le_bytes(reply[8..].try_into().unwrap()), 0.0625);
        }
        let bad = link.inject(&nearest, b"vectors").unwrap().wait(PATIENCE).unwrap_err().to_string();
        assert!(bad.contains("no query"), "{bad}");
        let odd = [b"vectors\0".to_vec(), bytes(&[1.0; 33])].concat();
        let odd = link.inject(&nearest, &odd).unwrap().wait(PATIENCE).unwrap_err().to_string();
        assert!(odd.contains("no multiple"), "{odd}");
        drop(server.shut_down());
    });
}

#[test]
fn the_nearest_vectors_come_in_order() {
    on_each(|program| {
        let server = Start::new(program).run();
        // The distance from the first vector grows with the index.
        let blob: Vec<u8> = (0..300).flat_map(|index| bytes(&[0.0, (index * 7 % 300) as f32])).collect();
        server.client().run(&[b"SET", b"vectors", &blob]).worked();
        let (link, topk) = (server.link(), library("topk"));
        let call = |wanted: u32| {
            let payload = [&wanted.to_le_bytes()[..], b"vectors\0", &bytes(&[0.0, 0.0])].concat();
            link.inject(&topk, &payload).unwrap().wait(PATIENCE)
        };
        for wanted in [1, 2, 10, 128] {
            let reply = call(wanted).unwrap();
            let found: Vec<(u64, f32)> = reply
                .chunks_exact(12)
                .map(|one| {
                    let (index, distance) = one.split_at(8);
                    (
                        u64::from_le_bytes(index.try_into().unwrap()),
                        f32::from_le_bytes(distance.try_into().unwrap()),
                    )
                })
                .collect();
            // 7 and 300 have no common factor: each distance is there once.
            let expected: Vec<(u64, f32)> = (0..wanted as u64)
                .map(|distance| (distance * 43 % 300, (distance * distance) as f32))
                .collect();
            assert_eq!(found, expected);
        }
        for wrong in [0, 129] {
            let error = call(wrong).unwrap_err().to_string();
            assert!(error.contains("from 1 to 128"), "{error}");
        }
        drop(server.shut_down());
    });
}

#[test]
fn a_bloom_filter_misses_no_item() {
    on_each(|program| {
        let server = Start::new(program).options("--appendonly yes --appendfsync always").run();
        let bloom = library("bloom");
        let ask = |link: &Link, operation: &str, item: usize| {
            let payload = format!("{operation}item {item}");
            link.inject(&bloom, payload.as_bytes()).unwrap().wait(PATIENCE).unwrap()[0]
        };
        let link = server.link();
        assert_eq!(ask(&link, "?", 0), 0);
        assert!((0..500).all(|item| ask(&link, "+", item) <= 1));
        let server = server.kill_and_start_again();
        let link = server.link();
        assert!((0..500).all(|item| ask(&link, "?", item) == 1));
        let false_ones = (500..1500).filter(|item| ask(&link, "?", *item) == 1).count();
        assert!(false_ones < 5, "{false_ones} of 1000 others seem to be there");
        drop(server.shut_down());
    });
}

#[test]
fn a_function_in_rust_adds_up_hashes_by_prefix_without_unsafe_code() {
    let library = library("filter_aggregate.rs");
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        for index in 0..300 {
            client.say(&format!("HSET item:{index} price {index} stock {}", 2 * index)).worked();
        }
        client.say("SET item:string x").worked();
        client.say("HSET item:odd price cheap").worked();
        client.say("HSET other:1 price 100 stock 1").worked();
        let link = server.link();
        assert_eq!(sums(&link, &library, "item: price 100 199 stock "), [100, (100..200).sum::<i64>() * 2]);
        assert_eq!(sums(&link, &library, "none price 0 1 stock "), [0, 0]);
        let bad = link.inject(&library, b"item:").unwrap().wait(PATIENCE).unwrap_err().to_string();
        assert!(bad.contains("whole numbers"), "{bad}");
        drop(server.shut_down());
    });
}

/// Calls the function with these words. A space behind each stands for a zero.
fn sums(link: &Link, library: &Library, words: &str) -> [i64; 2] {
    let payload = words.replace(' ', "\0");
    let reply = link.inject(library, payload.as_bytes()).unwrap().wait(PATIENCE).unwrap();
    let number = |at: usize| i64::from_le_bytes(reply[at..at + 8].try_into().unwrap());
    [number(0), number(8)]
}

#[test]
fn a_path_into_json_finds_the_value_that_is_there() {
    let library = library("json_path.rs");
    on_each(|program| {
        let server = Start::new(program).run();
        let text = br#" {"a": {"b c": [1, "two", {"d": [ ]}, -4.5e3], "e": null}, "quo\"te": 5, "s": "x, ] } \" y" , "last":true}"#;
        let mut client = server.client();
        client.run(&[b"SET", b"doc", text]).worked();
        for (key, broken) in
            [("cut", &text[..30]), ("empty", b""), ("odd", b"{\"a\" 1}"), ("open", b"[1, \"x")]
        {
            client.run(&[b"SET", key.as_bytes(), broken]).worked();
        }
        let link = server.link();
        let find = |words: &[&str]| {
            let payload: String = words.iter().map(|word| format!("{word}\0")).collect();
            let reply = link.inject(&library, payload.as_bytes()).unwrap().wait(PATIENCE).unwrap();
            String::from_utf8(reply.into_vec()).unwrap()
        };
        let found: [(&[&str], &str); 14] = [
            (&["doc", "a", "b c", "0"], "1"),
            (&["doc", "a", "b c", "1"], "\"two\""),
            (&["doc", "a", "b c", "2"], "{\"d\": [ ]}"),
            (&["doc", "a", "b c", "3"], "-4.5e3"),
            (&["doc", "a", "b c", "4"], ""),
            (&["doc", "a", "b c", "2", "d", "0"], ""),
            (&["doc", "a", "e"], "null"),
            (&["doc", "s"], "\"x, ] } \\\" y\""),
            (&["doc", "last"], "true"),
            (&["doc", "none"], ""),
            (&["doc", "last", "more"], ""),
            (&["doc", "a", "b c", "x"], ""),
            (&["none", "a"], ""),
            (&["doc", "a", "b c"], "[1, \"two\", {\"d\": [ ]}, -4.5e3]"),
        ];
        for (words, value) in found {
            assert_eq!(find(words), value, "{words:?}");
        }
        for (key, steps) in
            [("cut", ["a", "e"]), ("empty", ["a", "b"]), ("odd", ["a", "b"]), ("open", ["1", "0"])]
        {
            assert_eq!(find(&[key, steps[0], steps[1]]), "", "{key}");
        }
        let error = link.inject(&library, b"doc").unwrap().wait(PATIENCE).unwrap_err().to_string();
        assert!(error.contains("no zero at its end"), "{error}");
        drop(server.shut_down());
    });
}
