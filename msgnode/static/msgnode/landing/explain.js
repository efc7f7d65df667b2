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
  if (to === "mn:/session") return SESSION_REQUEST[type]?.(name) ?? `${name}’s stub speaks to the node.`;
  if (from === "mn:/session") return sessionAnswer(name, body, request);
  if (type === "response") return isOut ? replyOut(name, body) : reply(name, body, request);
  if (to.endsWith("/address-allocation")) return `${name} asks for an address for a new data object.`;
  if (to.endsWith("/sm")) return `${name} asks to hear what is sent to ${tails(body.resources)}.`;
  if (to.endsWith("/subscription")) {
    return isOut
      ? `${name} asks whether he may observe the object. The node only carries the question.`
      : "The node brings the question to the session that holds the object: Alice decides.";
  }
  if (to.endsWith("/changes")) {
    return isOut
      ? `${name} changes the ${body.attribute}: “${end(body.value)}”. Said once, for all who listen.`
      : `${name} listens to this address, so he is handed “${end(body.value)}”.`;
  }
  if (to.endsWith("/children/")) {
    if (isOut) return `${name} adds an answer to Alice’s object, as one of its children.`;
    if (name === "Bob") return "The node’s copy of Bob’s own answer: he listens too. His stub knows it and drops it.";
    return `${name} listens to the object’s children, so the node hands her ${OTHER[name]}’s answer.`;
  }
  if (body.value === "gap") return `The node says that it could not keep everything for ${name}.`;
  return isOut ? `${name} sends a message.` : `The node brings a message to ${name}.`;
}

const SESSION_REQUEST = {
  open: (name) => `${name}’s stub asks the node for a session.`,
  "re-open": (name) => `${name}’s stub is back. It shows its token to go on where it was.`,
  close: (name) => `${name}’s runtime leaves. The node may free all it held.`,
};

function sessionAnswer(name, body, request) {
  if (body.code !== 200) return `The node refuses: ${body.desc}`;
  if (request?.type === "close") return `The node has freed all that ${name} held.`;
  if (!body.runtimeToken) return "The token is right: the session goes on. What waited at the node follows.";
  return request?.type === "re-open"
    ? `The node does not know that session any more. ${name} gets a new, empty one.`
    : `${name} has a session. The token is the key to come back to it after a broken line.`;
}

function replyOut(name, body) {
  return body.code === 200 ? `${name} says yes, and sends the object as it is now.` : `${name} answers ${body.code}.`;
}

function reply(name, body, request) {
  const to = request?.to ?? "";
  if (body.code >= 300) return `No: ${body.desc ?? body.description ?? body.code}`;
  if (to.endsWith("/address-allocation")) return "The node made an address. It leads to Alice’s session and to nobody else.";
  if (to.endsWith("/sm")) return `Done, and written down: ${name} need not ask again after a restart.`;
  if (to.endsWith("/subscription")) return "The answer finds its way back by its address in “to”. Now Bob has a copy of the object.";
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
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : (names[0] ?? "an address");
}
