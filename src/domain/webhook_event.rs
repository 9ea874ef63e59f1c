//! The body of a webhook request.

/// The JSON body that reports one hit: exactly the six fields `event`, `short_id`, `redirect_url`, `hit_id`, `hit_at`
/// and `data`, in this order and without white space.
///
/// `hit_at` is an ISO 8601 UTC timestamp. `data_json` is the link's stored `data`, which is compact already. It is
/// inserted unchanged, so that key order and number text are as the user sent them.
pub fn hit_event_body(short_id: &str, redirect_url: &str, hit_id: &str, hit_at: &str, data_json: &str) -> Vec<u8> {
    let members = [
        ("event", "hit"),
        ("short_id", short_id),
        ("redirect_url", redirect_url),
        ("hit_id", hit_id),
        ("hit_at", hit_at),
    ];
    let mut body =
        Vec::with_capacity(128 + short_id.len() + redirect_url.len() + hit_id.len() + hit_at.len() + data_json.len());
    body.push(b'{');
    for (name, value) in members {
        push_json_string(&mut body, name);
        body.push(b':');
        push_json_string(&mut body, value);
        body.push(b',');
    }
    body.extend_from_slice(b"\"data\":");
    body.extend_from_slice(data_json.as_bytes());
    body.push(b'}');
    body
}

fn push_json_string(json: &mut Vec<u8>, text: &str) {
    // Writing a text to memory does not fail.
    let _ = serde_json::to_writer(json, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_the_six_fields_in_order_and_no_white_space() {
        let body = hit_event_body(
            "aB3xY9z",
            "https://example.com/a?b=c",
            "01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f",
            "2026-11-21T07:49:42.028Z",
            r#"{"b":1.0,"a":1e400,"é":[]}"#,
        );
        assert_eq!(
            String::from_utf8(body).unwrap(),
            concat!(
                r#"{"event":"hit","short_id":"aB3xY9z","redirect_url":"https://example.com/a?b=c","#,
                r#""hit_id":"01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f","#,
                r#""hit_at":"2026-11-21T07:49:42.028Z","data":{"b":1.0,"a":1e400,"é":[]}}"#
            )
        );
    }

    #[test]
    fn a_quote_in_a_url_cannot_break_out_of_its_string() {
        let url = r#"https://example.com/","data":{"admin":true},"x":"\"#;
        let body = hit_event_body("aB3xY9z", url, "id", "at", "{}");
        let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(read["redirect_url"], url);
        assert_eq!(read["data"], serde_json::json!({}));
        assert_eq!(read.as_object().map(serde_json::Map::len), Some(6));
    }
}
