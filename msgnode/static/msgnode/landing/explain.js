/**
 * One line for each message of the example: what it is and why it passes.
 *
 * explain(name, isOut, message, request)
 *   name     whose runtime it belongs to      isOut    from the runtime to the node
 *   request  of a response, if we saw it, the message it answers
 */

const OTHER = { Alice: "Bob", Bob: "Alice" };

export function explain(name, isOut, message, request) {
  const { type, to = "", from = "", body = {} } = message;
  if (to === "mn:/session")
    return SESSION_REQUEST[type]?.(name) ?? `${name}’s stub sends a request to the node.`;
  if (from === "mn:/session") return sessionAnswer(name, body, request);
  if (type === "response") return isOut ? replyOut(name, body) : reply(name, body, request);
  if (to.endsWith("/address-allocation"))
    return `${name} asks for an address for a new data object.`;
  if (to.endsWith("/sm")) return `${name} subscribes to ${tails(body.resources)}.`;
  if (to.endsWith("/subscription")) {
    return isOut
      ? `${name} asks whether he may observe the object. The node only forwards the request.`
      : "The node forwards the request to the session that holds the object: Alice decides.";
  }
  if (to.endsWith("/changes")) {
    return isOut
      ? `${name} changes the ${body.attribute}: “${end(body.value)}”. Sent once, for all who listen.`
      : `${name} listens to this address, so he receives “${end(body.value)}”.`;
  }
  if (to.endsWith("/children/")) {
    if (isOut) return `${name} adds an answer to Alice’s object, as one of its children.`;
    if (name === "Bob")
      return "The node’s copy of Bob’s own answer, because he listens too. His stub recognises and discards it.";
    return `${name} listens to the object’s children, so the node delivers ${OTHER[name]}’s answer to her.`;
  }
  if (body.value === "gap")
    return `The node reports that it could not keep all messages for ${name}.`;
  return isOut ? `${name} sends a message.` : `The node delivers a message to ${name}.`;
}

const SESSION_REQUEST = {
  open: (name) => `${name}’s stub asks the node for a session.`,
  "re-open": (name) => `${name}’s stub has reconnected. It resumes the session with its token.`,
  close: (name) =>
    `${name}’s runtime closes its session. The node may free its addresses and subscriptions.`,
};

function sessionAnswer(name, body, request) {
  if (body.code !== 200) return `The node refuses: ${body.desc}`;
  if (request?.type === "close") return `The node has freed ${name}’s addresses and subscriptions.`;
  if (!body.runtimeToken)
    return "The token is valid, and the session is resumed. The messages that waited at the node follow.";
  return request?.type === "re-open"
    ? `The node does not know that session any more. ${name} gets a new, empty one.`
    : `${name} has a session. With the token the stub can resume it after a lost connection.`;
}

function replyOut(name, body) {
  return body.code === 200
    ? `${name} accepts, and sends the object’s current state.`
    : `${name} answers ${body.code}.`;
}

function reply(name, body, request) {
  const to = request?.to ?? "";
  if (body.code >= 300) return `No: ${body.desc ?? body.description ?? body.code}`;
  if (to.endsWith("/address-allocation"))
    return "The node allocated an address. Messages to it go to Alice’s session only.";
  if (to.endsWith("/sm"))
    return `The node has stored the subscription: ${name} need not subscribe again after a restart.`;
  if (to.endsWith("/subscription"))
    return "The answer returns to the address in its “to”. Now Bob has a copy of the object.";
  return "The answer.";
}

/** The end of a text, where the typing happens. */
function end(value) {
  const text = String(value);
  return text.length > 20 ? `…${text.slice(-18).trimStart()}` : text;
}

/** The last parts of addresses, which tell them apart. */
function tails(addresses = []) {
  const names = addresses.map((each) => `/${each.split("/").slice(4).join("/")}`);
  return names.length > 1
    ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`
    : (names[0] ?? "an address");
}
