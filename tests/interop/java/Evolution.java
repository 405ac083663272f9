import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.UpdatePartitionSpec;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.Literal;
import org.apache.iceberg.transforms.Transforms;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/** Commands that make a table or change anything of it but its rows. */
final class Evolution {
  private Evolution() {}

  static BaseTable create(JsonNode command) {
    BaseTable table = PointerOperations.table(null);
    Schema schema = SchemaParser.fromJson(command.get("schema").toString());
    PartitionSpec spec = PartitionSpecParser.fromJson(schema, command.get("spec").toString());
    TableMetadata metadata =
        TableMetadata.newTableMetadata(schema, spec, command.get("location").asText(), strings(command.get("properties")));
    table.operations().commit(null, metadata);
    return table;
  }

  static BaseTable evolve(JsonNode command) {
    BaseTable table = PointerOperations.table(command.get("metadata").asText());
    for (JsonNode step : command.get("steps")) {
      switch (step.get(0).asText()) {
        case "set" -> table.updateProperties().set(step.get(1).asText(), step.get(2).asText()).commit();
        case "branch" -> table.manageSnapshots().createBranch(step.get(1).asText()).commit();
        case "partition", "unpartition" -> respec(table.updateSpec(), step);
        default -> reshape(table.updateSchema(), step);
      }
    }
    return table;
  }

  private static void respec(UpdatePartitionSpec update, JsonNode step) {
    String name = step.get(1).asText();
    if (step.get(0).asText().equals("partition")) {
      var transform = Transforms.fromString(step.get(2).asText());
      update.addField(name, Expressions.transform(step.get(3).asText(), transform)).commit();
    } else {
      update.removeField(name).commit();
    }
  }

  private static void reshape(UpdateSchema update, JsonNode step) {
    String name = step.get(1).asText();
    switch (step.get(0).asText()) {
      case "add" -> {
        Type type = type(step.get(2));
        if (step.has(3)) {
          update.addColumn(name, type, (Literal<?>) Expressions.lit(Values.internal(type, step.get(3))).to(type));
        } else {
          update.addColumn(name, type);
        }
      }
      case "drop" -> update.deleteColumn(name);
      case "rename" -> update.renameColumn(name, step.get(2).asText());
      case "promote" -> update.updateColumn(name, Types.fromPrimitiveString(step.get(2).asText()));
      case "first" -> update.moveFirst(name);
      default -> throw new IllegalArgumentException("Unknown step " + step);
    }
    update.commit();
  }

  /** A type as the table spec writes it in JSON. */
  private static Type type(JsonNode json) {
    var field = Values.JSON.createObjectNode().put("id", 1).put("name", "x").put("required", false);
    var schema = Values.JSON.createObjectNode().put("type", "struct");
    schema.putArray("fields").add(field.set("type", json));
    return SchemaParser.fromJson(schema.toString()).findType("x");
  }

  private static Map<String, String> strings(JsonNode object) {
    Map<String, String> strings = new HashMap<>();
    object.fieldNames().forEachRemaining(name -> strings.put(name, object.get(name).asText()));
    return strings;
  }
}
