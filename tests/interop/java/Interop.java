import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.iceberg.BaseTable;

/**
 * Iceberg's Java implementation behind a pipe: one JSON command a line on standard input, one JSON answer a line on
 * standard output. A command names a table by the location of its metadata file, and the answer to one that commits
 * names the new metadata file. An answer with "error" and "message" tells what Iceberg threw.
 */
final class Interop {
  private Interop() {}

  public static void main(String[] args) throws IOException {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      ObjectNode answer = Values.JSON.createObjectNode();
      try {
        run(Values.JSON.readTree(line), answer);
      } catch (Exception | StackOverflowError | NoClassDefFoundError e) {
        e.printStackTrace();
        answer.removeAll().put("error", e.getClass().getSimpleName()).put("message", String.valueOf(e.getMessage()));
      }
      answers.println(Values.JSON.writeValueAsString(answer));
    }
  }

  private static void run(JsonNode command, ObjectNode answer) throws IOException {
    switch (command.get("op").asText()) {
      case "create" -> moved(Evolution.create(command), answer);
      case "evolve" -> moved(Evolution.evolve(command), answer);
      case "commit" -> {
        List<String> paths = new ArrayList<>();
        moved(Commits.commit(command, paths), answer);
        answer.putPOJO("paths", paths);
      }
      case "compact" -> moved(Compaction.compact(command), answer);
      case "expire" -> moved(Compaction.expire(command), answer);
      case "read" -> Inspection.read(command, answer);
      case "select" -> Inspection.select(command, answer);
      case "inspect" -> Inspection.inspect(command, answer);
      case "puffin" -> Inspection.puffin(command, answer);
      default -> throw new IllegalArgumentException("Unknown command " + command);
    }
  }

  private static void moved(BaseTable table, ObjectNode answer) {
    answer.put("metadata", PointerOperations.location(table));
  }
}
