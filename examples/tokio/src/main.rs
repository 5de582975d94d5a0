//! A service on tokio that is injected into, and a client that awaits its calls.
//!
//! ```text
//! tokio_service serve ADDRESS [TRANSPORT]
//! tokio_service ask ADDRESS LIBSUM.SO HOST:PORT [TRANSPORT]
//! ```
//!
//! The service has rows. Tasks of it serve them line by line over TCP (`put KEY VALUE`, `get KEY`). One more
//! serves injected functions at `ADDRESS`, which is `unix:PATH` or `tcp:127.0.0.1:PORT`. It prints `ready`,
//! the address for lines, and `ADDRESS`. The client fills rows over TCP, has sums of them made by calls that
//! it awaits all at once, and compares.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farjump::{Library, Link, Target, export};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// State shared by all tasks of the service.
#[derive(Default)]
struct Store {
    rows: Mutex<BTreeMap<u64, u64>>,
    /// Number of times that the task of the target has been polled.
    woken: AtomicU64,
}

impl Store {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a line, and returns the response.
    fn respond(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>();
        match words[..] {
            ["put", key, value] => match (number(key), number(value)) {
                (Ok(key), Ok(value)) => self.rows().insert(key, value).unwrap_or(0).to_string(),
                _ => "put takes two numbers".to_owned(),
            },
            ["get", key] => match number(key) {
                Ok(key) => self.rows().get(&key).copied().unwrap_or(0).to_string(),
                Err(_) => "get takes a number".to_owned(),
            },
            ["woken"] => self.woken.load(Ordering::Relaxed).to_string(),
            _ => "no such command: put KEY VALUE, get KEY, woken".to_owned(),
        }
    }
}

/// Export for injected functions. It waits for another task no longer than a row takes to read or write.
unsafe extern "C" fn store_get(store: *const Arc<Store>, key: u64) -> u64 {
    // SAFETY: injected code passes its target_args on, which is the store that the target owns.
    let store = unsafe { &*store };
    store.rows().get(&key).copied().unwrap_or(0)
}

/// Serves lines and injected functions until one of them fails.
async fn serve(address: String, transport: Option<String>) -> Result<(), Failed> {
    let store = Arc::new(Store::default());
    let lines = TcpListener::bind("127.0.0.1:0").await?;
    let place = lines.local_addr()?;
    let mut target =
        Target::listen(&address).args_owned(Arc::clone(&store)).exports([export!(store_get(_, _))]);
    if let Some(transport) = transport {
        target = target.transport(&transport);
    }
    let mut target = target.build()?;
    println!("ready {place} {}", target.address());
    let polls = Arc::clone(&store);
    let injected = tokio::spawn(async move {
        let mut run = pin!(target.run_async());
        poll_fn(|cx| {
            polls.woken.fetch_add(1, Ordering::Relaxed);
            run.as_mut().poll(cx)
        })
        .await
    });
    tokio::select! {
        ended = injected => Ok(ended??),
        ended = serve_lines(lines, store) => ended,
    }
}

async fn serve_lines(listener: TcpListener, store: Arc<Store>) -> Result<(), Failed> {
    loop {
        let (stream, _) = listener.accept().await?;
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let (input, mut output) = stream.into_split();
            let mut lines = BufReader::new(input).lines();
            // A failed read or write ends this connection, and nothing else.
            while let Ok(Some(line)) = lines.next_line().await {
                let response = format!("{}\n", store.respond(&line));
                if output.write_all(response.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// A connection to the service's lines.
struct Lines(BufReader<TcpStream>);

impl Lines {
    async fn request(&mut self, line: &str) -> Result<u64, Failed> {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        Ok(answer.trim().parse()?)
    }
}

/// Returns keys as `sum` takes them.
fn to_bytes(keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    keys.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Rows that the client fills.
const ROWS: u64 = 100;
/// Keys of the longest call: 8 MB, which no socket takes at once.
const MANY: u64 = 1_000_000;

/// Fills rows, and has sums made of them while it changes some.
async fn run_client(
    address: &str,
    library: &str,
    lines: &str,
    transport: Option<&str>,
) -> Result<(), Failed> {
    let mut lines = Lines(BufReader::new(TcpStream::connect(lines).await?));
    for key in 0..ROWS {
        lines.request(&format!("put {key} {}", key * key)).await?;
    }

    let mut builder = Link::builder(address);
    if let Some(transport) = transport {
        builder = builder.transport(transport);
    }
    let (link, sum) = (builder.connect_shared().await?, Library::open(library)?);

    // All of them are in flight at the same time, on one link.
    let mut calls = JoinSet::new();
    for key in 0..ROWS - 2 {
        let (link, sum) = (link.clone(), sum.clone());
        calls.spawn(async move {
            let call = link.inject(&sum, &to_bytes([key, key + 1, key + 2])).await?;
            let reply = tokio::time::timeout(Duration::from_secs(60), call).await??;
            Ok::<_, Failed>((key, reply.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))))
        });
    }
    let middle = lines.request("get 50").await?;
    let mut right = 0;
    while let Some(replied) = calls.join_next().await {
        let (key, total) = replied??;
        let expected: u64 = (key..key + 3).map(|key| key * key).sum();
        if total != Some(expected) {
            return Err(format!("rows {key} to {} sum up to {expected}, not {total:?}", key + 2).into());
        }
        right += 1;
    }
    println!("row 50 is {middle}, and {right} sums are right");

    lines.request("put 4 1000").await?;
    let reply = link.inject(&sum, &to_bytes([3, 4, 5])).await?.await?;
    let total = reply.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    println!("with 1000 in row 4, rows 3, 4 and 5 sum up to {}", total.unwrap_or(0));

    // More than is sent at once: the task sleeps until there is credit, and others run meanwhile.
    let keys = to_bytes((0..MANY).map(|at| at % ROWS));
    let sends = async { link.inject(&sum, &keys).await?.await };
    let (reply, row) = tokio::join!(sends, lines.request("get 4"));
    let total = reply?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    println!("{MANY} keys, with {} in row 4, sum up to {}", row?, total.unwrap_or(0));
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address, ref more @ ..] if more.len() < 2 => {
            serve(address.to_owned(), more.first().map(|name| (*name).to_owned())).await
        }
        ["ask", address, library, lines, ref more @ ..] if more.len() < 2 => {
            run_client(address, library, lines, more.first().copied()).await
        }
        _ => Err(
            "usage: tokio_service serve ADDRESS [TRANSPORT] | ask ADDRESS LIBSUM.SO HOST:PORT [TRANSPORT]"
                .into(),
        ),
    }
}
