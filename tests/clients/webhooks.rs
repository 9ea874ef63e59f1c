//! Judges the requests of standard input by the page's function.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

mod page;

fn is_genuine(request: &Value) -> bool {
    let header = |name: &str| request["headers"][name].as_str().unwrap_or("");
    let body = BASE64.decode(request["body"].as_str().unwrap()).unwrap();
    page::is_genuine(
        request["secret"].as_str().unwrap(),
        header("webhook-id"),
        header("webhook-timestamp"),
        header("webhook-signature"),
        &body,
    )
}

fn main() {
    let requests: Vec<Value> = serde_json::from_reader(std::io::stdin()).unwrap();
    let judgements: Vec<bool> = requests.iter().map(is_genuine).collect();
    println!("{}", serde_json::json!({"page's rust": judgements}));
}
